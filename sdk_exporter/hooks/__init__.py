"""Hook points of the platforms: one file each."""
