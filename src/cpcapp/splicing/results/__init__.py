"""Results of photos as files in a folder: pictures, one JSON file a photo, and a table of all."""
