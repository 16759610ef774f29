"""The contracts do what their pages say."""
