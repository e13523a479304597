//! A server whose sandboxes are only pretended, for those who write clients, and to measure the
//! control plane by itself:
//!
//! ```text
//! cargo run --release --example pretend -- server --listen 127.0.0.1:8080 --data-dir DIR
//! ```
//!
//! Its key is in `DIR/api-key`.

use std::{error::Error, future::pending, sync::Arc};

use osb_core::{SystemClock, testkit::FakeRuntime};
use osb_server::{Config, Overrides, RawConfig, Server, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let overrides = Overrides {
        listen: value("--listen").map(|address| address.parse()).transpose()?,
        data_dir: Some(value("--data-dir").ok_or("say --data-dir")?.into()),
        ..Overrides::default()
    };
    let config = Config::new(RawConfig::default(), overrides)?;
    let listener = Server::listen(&config).await?;
    // Of networks there are none: each would take descriptors of this process.
    let runtime = Arc::new(FakeRuntime::new().without_network());
    let world = World { runtime, images: None, clock: Arc::new(SystemClock) };
    Server::start(listener, config, world).await?.run(pending()).await;
    Ok(())
}
