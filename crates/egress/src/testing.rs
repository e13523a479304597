//! A door with hosts behind it, all on the loopback.

use std::{net::SocketAddr, sync::Arc};

use osb_api::SandboxId;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    Decision, Egress, Operator, Policy, RawOperator, Resolvers, Settings, door::Door, streams,
    upstream::tests::TestResolver,
};

pub(crate) struct TestHouse {
    pub(crate) egress: Egress,
    pub(crate) door: Arc<Door>,
    pub(crate) resolver: TestResolver,
}

/// What stands for the Internet, which the operator must allow.
pub(crate) const LOOPBACK: &str = "127.0.0.0/8";

/// A policy as clients write it. Its hosts are on the loopback.
pub(crate) fn policy(json: &str) -> Arc<Policy> {
    let raw = RawOperator { allow: vec![LOOPBACK.to_owned()], ..RawOperator::default() };
    compile(json, &Operator::new(&raw).expect("an operator"))
}

fn compile(json: &str, operator: &Operator) -> Arc<Policy> {
    let wire = serde_json::from_str(json).expect("a policy");
    Arc::new(Policy::compile(&wire, operator).expect("a policy"))
}

/// A policy that allows these, in order, and nothing else.
pub(crate) fn only(targets: &[&str]) -> Arc<Policy> {
    let rules = targets.iter().filter(|target| **target != LOOPBACK);
    let rules = rules.map(|target| format!(r#"{{"action":"allow","target":"{target}"}}"#));
    let rules = rules.collect::<Vec<_>>().join(",");
    let json = format!(r#"{{"defaultAction":"deny","egress":[{rules}]}}"#);
    if targets.contains(&LOOPBACK) { policy(&json) } else { compile(&json, &Operator::default()) }
}

impl TestHouse {
    /// Names end in `.test`, and all lead to the loopback.
    pub(crate) async fn start(policy: Arc<Policy>) -> Self {
        Self::with(policy, Settings::default()).await
    }

    pub(crate) async fn with(policy: Arc<Policy>, settings: Settings) -> Self {
        let loopback: &[&str] = &["127.0.0.1"];
        let names = ["a.test", "b.test", "x.w.test"].map(|name| (name, loopback));
        let resolver = TestResolver::start(&names).await;
        let resolvers = Resolvers::These(vec![resolver.address]);
        let egress = Egress::start(Settings { resolvers, ..settings }).expect("a runtime");
        let door = egress.door_for_tests(SandboxId::random(), policy, None);
        Self { egress, door, resolver }
    }

    /// The address that stands for a name.
    pub(crate) fn address(&self, name: &str, port: u16) -> SocketAddr {
        let name = crate::Name::parse(name).expect("a name");
        (self.door.book().enter(&name).expect("room").v4, port).into()
    }

    /// What a program in the sandbox sees when it connects.
    pub(crate) async fn connect(&self, to: SocketAddr) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (door, accepted) = (self.door.clone(), accepted.expect("a connection").0);
        let serving = async move { streams::serve(&door, accepted, to).await };
        self.door.house.tasks.spawn(serving);
        client.expect("a connection")
    }

    /// The latest decision, once one meets the condition.
    pub(crate) async fn decided(&self, condition: impl Fn(&Decision) -> bool) -> Decision {
        let mut watch = self.egress.watch();
        loop {
            if let Some(found) = self.door.recent().into_iter().rev().find(&condition) {
                return found;
            }
            watch.recv().await.expect("a decision");
        }
    }
}

/// A host that greets, if it has a greeting, then repeats what it is sent.
pub(crate) async fn echo(greeting: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(greeting.as_bytes()).await?;
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await?;
                to.shutdown().await
            });
        }
    });
    port
}

/// Everything until the other side is done; an error if it breaks off.
pub(crate) async fn rest(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}
