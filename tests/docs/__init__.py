"""The pages of the site: reference written from the models, and all pages in one folder."""
