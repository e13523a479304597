//! Reverse proxy into sandboxes: endpoint resolution, routing, streaming.
