"""Running episodes. Knows no files, no models and no pytest."""
