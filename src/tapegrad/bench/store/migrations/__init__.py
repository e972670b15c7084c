"""How the tables came to be what they are: one revision a file, never edited afterwards."""
