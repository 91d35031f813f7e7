"""The status of a job, a gang or a queue: one pure function per kind of subject, and the values they return."""
