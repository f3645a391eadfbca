"""Exchange of whole programs with other libraries, one package for each. Arrays alone need nothing from here."""
