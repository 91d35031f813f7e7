"""Where a job, a gang or a queue stands: one pure function per kind of subject, and the values they return."""
