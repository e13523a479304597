use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
};

use clap::Parser;
use osb_api::ports;
use osb_core::Token;

use crate::{
    boot::{Listen, Start, StartError},
    env,
    environment::Environment,
    metrics::Meter,
};

/// Runs commands and moves files inside a sandbox, on behalf of callers over HTTP.
#[derive(Debug, Parser)]
#[command(name = "execd", version)]
pub struct Args {
    /// Port to listen on, on every IPv4 address; 0 takes a free one. The address is printed.
    #[arg(long, default_value_t = ports::EXECD)]
    port: u16,

    /// Secret that callers must send in `X-EXECD-ACCESS-TOKEN`; without it everyone may call.
    ///
    /// Other processes can read arguments: prefer the variable.
    #[arg(long, env = env::ACCESS_TOKEN, hide_env_values = true, value_parser = token)]
    access_token: Option<Token>,

    /// Run as the first process of a sandbox: instructions come as JSON on descriptor 3, the
    /// socket to listen on is descriptor 4, and execd ends with the entrypoint's exit code.
    #[arg(long)]
    boot: bool,
}

impl Args {
    /// What to start, with the descriptors and the environment that this process was given.
    pub fn start(self) -> Result<Start, StartError> {
        if self.boot {
            return Start::from_descriptors();
        }
        Ok(Start {
            listen: Listen::Tcp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port)),
            token: self.access_token.filter(|token| !token.reveal().is_empty()),
            environment: Environment::new(
                env::inherited(),
                std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            ),
            entrypoint: None,
            meter: Meter::found(),
        })
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature that clap asks for")]
fn token(secret: &str) -> Result<Token, Infallible> {
    Ok(Token::new(secret))
}
