"""The preemptor: proposes victims for jobs below their guarantee, and for urgent jobs where the tree allows it."""
