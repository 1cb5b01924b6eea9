"""Who is given up, and only then; and what there is to take his place."""
