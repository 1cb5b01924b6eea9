"""Who takes part: epochs, steps, who is chosen, who is shut out, and that nobody goes in vain."""
