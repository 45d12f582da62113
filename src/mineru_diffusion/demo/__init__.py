"""The demo: a page in the browser that reads documents and replays how they were read. Needs the extra `demo`."""
