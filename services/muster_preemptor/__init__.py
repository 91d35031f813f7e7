"""The preemptor: takes part and has nothing to decide yet."""
