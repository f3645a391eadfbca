"""Conversion of programs between tracefx and other libraries, one package each. Arrays alone need none of this."""
