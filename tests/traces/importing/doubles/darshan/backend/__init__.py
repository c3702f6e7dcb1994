"""Where the double has what the real package has."""
