"""Clusters as other people have them: their records, rights, listeners and logins."""
