from tracefx.image.resizing import ResizeMethod as ResizeMethod
from tracefx.image.resizing import resize as resize
from tracefx.image.resizing import scale_and_translate as scale_and_translate
