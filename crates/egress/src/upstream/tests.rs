use std::{collections::HashMap, sync::Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
};

use super::*;
use crate::{
    dns::{Code, Record},
    limits::Places,
};

/// A resolver on the loopback that knows some names, and counts what it is asked.
pub(crate) struct TestResolver {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl TestResolver {
    pub(crate) async fn start(names: &[(&str, &[&str])]) -> Self {
        let (stream, socket) = loop {
            let stream = TcpListener::bind("127.0.0.1:0").await.unwrap();
            // The same port may be taken for datagrams.
            if let Ok(socket) = UdpSocket::bind(stream.local_addr().unwrap()).await {
                break (stream, socket);
            }
        };
        let address = stream.local_addr().unwrap();
        let known: Arc<HashMap<String, Vec<IpAddr>>> = Arc::new(
            names
                .iter()
                .map(|(name, addresses)| {
                    let addresses = addresses.iter().map(|text| text.parse().unwrap());
                    ((*name).to_owned(), addresses.collect())
                })
                .collect(),
        );
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (names, seen) = (known.clone(), asked.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let query = Query::read(&buffer[..length]).unwrap();
                let answer = query.fit(answer(&query, &names, &seen));
                if !answer.is_empty() {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        let seen = asked.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = stream.accept().await {
                let mut question = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut question).await.unwrap();
                let answer = answer(&Query::read(&question).unwrap(), &known, &seen);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length[..], &answer].concat()).await.unwrap();
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<(String, u16)> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(
    query: &Query,
    names: &HashMap<String, Vec<IpAddr>>,
    asked: &Mutex<Vec<(String, u16)>>,
) -> Vec<u8> {
    let name = query.name.as_ref().unwrap().as_str();
    asked.lock().unwrap().push((name.to_owned(), query.kind));
    if name.starts_with("failing") {
        return query.answer(Code::Failed, &[], 0);
    }
    let Some(addresses) = names.get(name) else {
        return query.answer(Code::NoSuchName, &[], 0);
    };
    let is_asked = |address: &&IpAddr| match query.kind {
        kind::A => address.is_ipv4(),
        kind::AAAA => address.is_ipv6(),
        _ => true,
    };
    let records: Vec<_> =
        addresses.iter().filter(is_asked).map(|it| Record::Address(*it)).collect();
    query.answer(Code::Fine, &records, 300)
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Lets one name lead to the loopback by way of another.
pub(crate) async fn alias(upstream: &Upstream, from: &str, to: &str) {
    let addresses = [IpAddr::from([127, 0, 0, 1])];
    let resolved = Resolved::Aliased(addresses.into(), [name(to)].into());
    upstream.cache.find(&name(from), || async { (resolved, Duration::from_hours(1)) }).await;
}

#[tokio::test]
async fn names_are_asked_for_once_and_kept() {
    let resolver = TestResolver::start(&[("a.test", &["10.0.0.1", "10.0.0.2"])]).await;
    let upstream = Upstream::new(Resolvers::These(vec![resolver.address]), Places::new(8));
    let addresses: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap()).into();
    for _ in 0..2 {
        let found = upstream.resolve(&name("a.test")).await;
        assert_eq!(found, Resolved::Addresses(addresses.clone().into()));
        assert_eq!(upstream.resolve(&name("none.test")).await, Resolved::Nothing);
    }
    let asked = resolver.asked().into_iter().filter(|(_, kind)| *kind == kind::A).count();
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn a_server_that_fails_is_passed_over() {
    let resolver = TestResolver::start(&[("a.test", &["10.0.0.1"])]).await;
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let upstream = Upstream::new(Resolvers::These(vec![closed, resolver.address]), Places::new(8));
    assert!(matches!(upstream.resolve(&name("a.test")).await, Resolved::Addresses(_)));
    assert_eq!(upstream.resolve(&name("failing.test")).await, Resolved::Failed);
}

#[tokio::test]
async fn what_does_not_fit_is_asked_for_by_stream() {
    let many: Vec<String> = (0..100).map(|n| format!("10.0.0.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let resolver = TestResolver::start(&[("many.test", &many)]).await;
    let upstream = Upstream::new(Resolvers::These(vec![resolver.address]), Places::new(8));
    let Resolved::Addresses(found) = upstream.resolve(&name("many.test")).await else {
        panic!("not resolved");
    };
    assert_eq!(found.len(), 32);
}
