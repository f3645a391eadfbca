"""What `make docs` needs beside Markdown: the pages that are made of the sources, and where links of the site lead."""
