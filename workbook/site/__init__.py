"""The site: pages made from committed tables and from docs/, built by MkDocs. Nothing here runs or measures."""
