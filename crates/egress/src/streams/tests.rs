use std::io::ErrorKind;

use osb_api::SandboxId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::{
    Egress, Guarded, Protocol, Resolvers, Settings,
    testing::{LOOPBACK, TestHouse, echo, only, policy, rest},
    upstream::tests::alias,
};

#[tokio::test]
async fn bytes_pass_both_ways_to_a_name_that_is_allowed() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("hello ").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    stream.write_all(b"\0world").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await.unwrap(), b"hello \0world");
    let decision = house.decided(|decision| decision.end.is_some()).await;
    let end = decision.end.unwrap();
    assert_eq!((end.sent, end.received, end.how), (6, 12, Ending::Done));
    assert_eq!(decision.what.name.unwrap().as_str(), "a.test");
    assert_eq!(decision.what.address, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(decision.ruling.by, By::Rule("a.test".into()));
}

#[tokio::test]
async fn what_is_not_allowed_is_reset_and_never_dialled() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for to in [
        house.address("b.test", port),
        // It is allowed, but leads to the host itself.
        house.address("a.test", port),
        ([127, 0, 0, 1], port).into(),
        ([169, 254, 169, 254], 80).into(),
        // An address that stands for no name.
        ([198, 19, 7, 7], port).into(),
    ] {
        let mut stream = house.connect(to).await;
        let error = rest(&mut stream).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to}");
    }
    // Whoever reads the log sees where the name leads.
    assert_eq!(house.door.recent()[1].what.address, Some([127, 0, 0, 1].into()));
    let by: Vec<By> = house.door.recent().into_iter().map(|decision| decision.ruling.by).collect();
    let guard = |guarded| By::Guard(guarded);
    let expected = [
        By::Default,
        guard(Guarded::Host),
        guard(Guarded::Host),
        guard(Guarded::Metadata),
        By::Default,
    ];
    assert_eq!(by, expected);
    let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(nobody.is_err(), "somebody was dialled");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_looks_like_it() {
    let house = TestHouse::start(only(&["a.test", "none.test", LOOPBACK])).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for name in ["a.test", "none.test"] {
        let mut stream = house.connect(house.address(name, closed)).await;
        assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let ended = |decision: &crate::Decision| {
            let named = decision.what.name.as_ref().is_some_and(|it| it.as_str() == name);
            named && decision.end.as_ref().is_some_and(|end| end.how == Ending::Unreachable)
        };
        house.decided(ended).await;
    }
}

#[tokio::test]
async fn a_connection_for_another_host_is_refused_before_a_byte_leaves() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let hello = crate::sniff::hello_for("b.test");
    let requests = [
        hello.as_slice(),
        b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        b"CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ];
    for request in requests {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut stream = house.connect(house.address("a.test", port)).await;
        stream.write_all(request).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        assert_eq!(
            accepted.read(&mut [0; 9]).await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let refused = Ending::Cut(Ruling { verdict: Verdict::Deny, by: By::Mismatch });
        let end = |decision: &crate::Decision| decision.end.as_ref().map(|end| end.how.clone());
        house.decided(|it| it.what.port == port && end(it) == Some(refused.clone())).await;
    }
}

#[tokio::test]
async fn a_request_for_the_host_itself_passes_however_slowly_it_comes() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("").await;
    let hello = crate::sniff::hello_for("A.test");
    let request = b"GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n".to_vec();
    for bytes in [hello, request] {
        let mut stream = house.connect(house.address("a.test", port)).await;
        stream.set_nodelay(true).unwrap();
        for part in bytes.chunks(bytes.len() / 3) {
            stream.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream.shutdown().await.unwrap();
        assert_eq!(rest(&mut stream).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_host_that_speaks_first_is_heard_at_once() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("SSH-2.0-test\r\n").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    let mut banner = [0; 14];
    stream.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"SSH-2.0-test\r\n");
}

#[tokio::test]
async fn whoever_was_silent_for_long_may_still_speak_slowly() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("hello ").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    stream.set_nodelay(true).unwrap();
    // It is connected to its host by then.
    stream.read_exact(&mut [0; 6]).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(5)).await;
    tokio::time::resume();
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for part in request.chunks(request.len() / 3) {
        stream.write_all(part).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await.unwrap(), request);
}

#[tokio::test]
async fn at_an_address_nobody_is_asked_for_whom_a_rule_denies() {
    let rules = r#"{"defaultAction":"allow","egress":[{"action":"deny","target":"b.test"}]}"#;
    let house = TestHouse::start(policy(rules)).await;
    let port = echo("").await;
    for (host, passes) in [("b.test", false), ("c.test", true)] {
        let mut stream = house.connect(([127, 0, 0, 1], port).into()).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        // The other side may have been reset already.
        drop(stream.shutdown().await);
        assert_eq!(rest(&mut stream).await.is_ok(), passes, "{host}");
    }
}

#[tokio::test]
async fn a_new_policy_cuts_what_it_does_not_cover_and_nothing_else() {
    let house = TestHouse::start(only(&["a.test", "b.test", LOOPBACK])).await;
    let port = echo("!").await;
    let mut kept = house.connect(house.address("a.test", port)).await;
    let mut cut = house.connect(house.address("b.test", port)).await;
    for stream in [&mut kept, &mut cut] {
        stream.read_exact(&mut [0]).await.unwrap();
    }
    assert_eq!(house.egress.counts().open, 2);
    assert!(house.egress.set_policy(house.door.id, only(&["a.test", LOOPBACK])));
    assert_eq!(rest(&mut cut).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    kept.write_all(b"\0still").await.unwrap();
    let mut still = [0; 6];
    kept.read_exact(&mut still).await.unwrap();
    let is_cut = |end: &crate::End| matches!(end.how, Ending::Cut(_));
    let decision = house.decided(|decision| decision.end.as_ref().is_some_and(is_cut)).await;
    assert_eq!(decision.what.name.unwrap().as_str(), "b.test");
    assert_eq!(decision.what.address, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(house.egress.counts().open, 1);
}

#[tokio::test]
async fn a_new_policy_cuts_what_it_denies_by_an_alias() {
    let house = TestHouse::start(only(&["alias.test", LOOPBACK])).await;
    alias(&house.door.house.upstream, "alias.test", "b.test").await;
    let port = echo("!").await;
    let mut stream = house.connect(house.address("alias.test", port)).await;
    stream.read_exact(&mut [0]).await.unwrap();
    let rules = r#"{"action":"deny","target":"b.test"},{"action":"allow","target":"alias.test"}"#;
    let tightened = policy(&format!(r#"{{"defaultAction":"deny","egress":[{rules}]}}"#));
    // What it is an alias of need not be allowed.
    assert!(house.egress.set_policy(house.door.id, only(&["alias.test", "a.test", LOOPBACK])));
    stream.write_all(b"\0").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
    assert!(house.egress.set_policy(house.door.id, tightened));
    assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let cut = Ending::Cut(Ruling { verdict: Verdict::Deny, by: By::Rule("b.test".into()) });
    house.decided(|it| it.end.as_ref().is_some_and(|end| end.how == cut)).await;
}

#[tokio::test]
async fn whoever_leaves_takes_everything_along() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("!").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    stream.read_exact(&mut [0]).await.unwrap();
    house.egress.leave(house.door.id);
    assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(!house.egress.set_policy(house.door.id, only(&[])));
    let mut late = house.connect(house.address("a.test", port)).await;
    assert_eq!(rest(&mut late).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_sandbox_has_only_so_many_connections() {
    let settings = Settings { connections: 3, ..Settings::default() };
    let house = TestHouse::with(only(&["a.test", LOOPBACK]), settings).await;
    let port = echo("!").await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = house.connect(house.address("a.test", port)).await;
        stream.read_exact(&mut [0]).await.unwrap();
        streams.push(stream);
    }
    let mut surplus = house.connect(house.address("a.test", port)).await;
    assert_eq!(rest(&mut surplus).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    house.decided(|decision| decision.ruling.by == By::Limit).await;
    streams.pop();
    house.decided(|decision| decision.end.is_some()).await;
    let mut next = house.connect(house.address("a.test", port)).await;
    next.read_exact(&mut [0]).await.unwrap();
}

#[tokio::test]
async fn much_passes_whole_and_is_counted() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("").await;
    let sent: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut stream = house.connect(house.address("a.test", port)).await;
    let (mut from, mut to) = stream.split();
    let mut received = Vec::new();
    let all = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    tokio::join!(all, async { from.read_to_end(&mut received).await.unwrap() });
    assert!(received == sent);
    let end = house.decided(|it| it.end.is_some()).await.end.unwrap();
    assert_eq!((end.sent, end.received), (5_000_000, 5_000_000));
    let counts = house.egress.counts();
    assert_eq!((counts.sent, counts.received), (5_000_000, 5_000_000));
    assert!(counts.allowed.contains(&(Protocol::Tcp, 1)));
}

#[tokio::test]
async fn a_sandbox_may_send_a_little_only_so_often() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    stream.set_nodelay(true).unwrap();
    let began = tokio::time::Instant::now();
    let mut answer = [0];
    for byte in 0..2000_u32 {
        let byte = [byte.to_le_bytes()[0]];
        stream.write_all(&byte).await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, byte);
    }
    // Passed on 4000 times, 1000 of them at once.
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_sandbox_may_have_only_so_much_bandwidth() {
    let settings = Settings { bandwidth: Some(1_000_000), ..Settings::default() };
    let house = TestHouse::with(only(&["a.test", LOOPBACK]), settings).await;
    let port = echo("").await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    let began = tokio::time::Instant::now();
    stream.write_all(&vec![0; 200_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    rest(&mut stream).await.unwrap();
    let lasted = began.elapsed();
    assert!(lasted > Duration::from_millis(200), "400 kB took {lasted:?}");
}

#[tokio::test]
async fn the_resolver_answers_streams_at_any_address() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let mut stream = house.connect(([9, 9, 9, 9], RESOLVER).into()).await;
    let name = crate::Name::parse("a.test").unwrap();
    let question = crate::dns::ask(7, &name, 1, false);
    for _ in 0..2 {
        stream
            .write_all(
                &[&u16::try_from(question.len()).unwrap().to_be_bytes(), &*question].concat(),
            )
            .await
            .unwrap();
        let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
        stream.read_exact(&mut answer).await.unwrap();
        let reply = crate::dns::Reply::read(&answer, &question).unwrap();
        assert_eq!(reply.addresses, [house.address("a.test", 0).ip()]);
    }
}

#[tokio::test]
async fn streams_on_which_nobody_asks_keep_no_one_from_asking() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(house.connect(([9, 9, 9, 9], RESOLVER).into()).await);
    }
    let mut surplus = house.connect(([9, 9, 9, 9], RESOLVER).into()).await;
    assert_eq!(rest(&mut surplus).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(house.door.recent()[0].ruling.by, By::Limit);
    // All of them are taken by now, and datagrams still find a turn.
    assert_eq!(house.door.asking.available_permits(), 64);
}

#[tokio::test]
async fn what_is_too_long_for_a_question_is_not_read_and_is_written_down() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let mut stream = house.connect(([9, 9, 9, 9], RESOLVER).into()).await;
    stream.write_all(&u16::MAX.to_be_bytes()).await.unwrap();
    assert_eq!(rest(&mut stream).await.unwrap(), b"");
    let [decision] = house.door.recent().try_into().unwrap();
    assert_eq!((decision.what.protocol, decision.ruling.by), (Protocol::Dns, By::Default));
}

#[tokio::test]
async fn a_connection_that_is_cut_before_its_host_is_known_is_written_down() {
    let mut house = TestHouse::start(only(&[])).await;
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let resolvers = Resolvers::These(vec![silent.local_addr().unwrap()]);
    house.egress = Egress::start(Settings { resolvers, ..Settings::default() }).unwrap();
    house.door = house.egress.door_for_tests(SandboxId::random(), only(&["a.test"]), None);
    let mut stream = house.connect(house.address("a.test", 80)).await;
    silent.recv(&mut [0; 512]).await.unwrap();
    assert!(house.egress.set_policy(house.door.id, only(&[])));
    assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let [decision] = house.door.recent().try_into().unwrap();
    assert_eq!(decision.what.name.unwrap().as_str(), "a.test");
    assert_eq!(decision.ruling, Ruling { verdict: Verdict::Deny, by: By::Default });
}

#[tokio::test]
async fn whoever_follows_a_sandbox_misses_nothing_because_of_another() {
    let house = TestHouse::start(only(&[])).await;
    let loud = house.egress.door_for_tests(SandboxId::random(), only(&[]), None);
    let mut follow = house.egress.follow(house.door.id).unwrap();
    let denied = Ruling { verdict: Verdict::Deny, by: By::Default };
    let target = Target::Address([192, 0, 2, 1].into());
    house.door.note(target.attempt(443), denied.clone());
    for port in 1..5000 {
        loud.note(target.attempt(port), denied.clone());
    }
    loud.close();
    house.door.close();
    let decision = follow.next().await.expect("it was missed");
    assert_eq!((decision.sandbox, decision.what.port), (house.door.id, 443));
}

/// Runs a test in whose time nothing happens by itself: while it waits for a socket, which takes no time,
/// time goes on in small steps only, and not at once to when somebody loses patience.
async fn in_small_steps(test: impl Future<Output = ()>) {
    let steps = async {
        loop {
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = test => {}
        () = steps => {}
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_say_for_whom_he_came_is_refused_after_a_while() {
    in_small_steps(async {
        let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
        let port = echo("").await;
        let hello = crate::sniff::hello_for("a.test");
        let request =
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX: and so on, and so on, and so on\r\n\r\n";
        for bytes in [&*hello, request] {
            let mut stream = house.connect(house.address("a.test", port)).await;
            let began = tokio::time::Instant::now();
            for byte in bytes.chunks(1) {
                if stream.write_all(byte).await.is_err() {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
            let lasted = began.elapsed();
            assert!((29..35).contains(&lasted.as_secs()), "{lasted:?}");
        }
        let refused = Ending::Cut(Ruling { verdict: Verdict::Deny, by: By::Mismatch });
        house
            .decided(|it| it.times == 2 && it.end.as_ref().is_some_and(|it| it.how == refused))
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_which_one_side_is_done_ends_when_the_other_is_silent_for_long() {
    in_small_steps(async {
        let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut stream = house.connect(house.address("a.test", port)).await;
        let (mut accepted, _) = listener.accept().await.unwrap();
        stream.shutdown().await.unwrap();
        for _ in 0..3 {
            sleep(Duration::from_mins(10)).await;
            accepted.write_all(b"!").await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
        }
        let silent = tokio::time::Instant::now();
        assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!((10 * 60..31 * 60).contains(&silent.elapsed().as_secs()));
        house.decided(|decision| decision.end.is_some()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_thrown_away_after_a_while() {
    in_small_steps(async {
        let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut stream = house.connect(house.address("a.test", port)).await;
        let (mut accepted, _) = listener.accept().await.unwrap();
        stream.shutdown().await.unwrap();
        // More than the kernel holds on one side, less than on both.
        accepted.write_all(&vec![0; 1 << 20]).await.unwrap();
        accepted.shutdown().await.unwrap();
        house.decided(|decision| decision.end.is_some()).await;
        assert_eq!(house.egress.counts().open, 0);
        assert_eq!(rest(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_resolver_does_not_wait_for_long_for_a_question() {
    in_small_steps(async {
        let house = TestHouse::start(only(&["a.test"])).await;
        let mut stream = house.connect(([9, 9, 9, 9], RESOLVER).into()).await;
        stream.write_all(&[0]).await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(rest(&mut stream).await.unwrap(), b"");
        let lasted = began.elapsed();
        assert!((9..12).contains(&lasted.as_secs()), "{lasted:?}");
    })
    .await;
}

#[tokio::test]
async fn when_all_is_stopped_it_is_written_down_how_each_connection_ended() {
    let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
    let port = echo("hello").await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = house.connect(house.address("a.test", port)).await;
        stream.read_exact(&mut [0; 5]).await.unwrap();
        streams.push(stream);
    }
    assert!(house.door.recent().iter().all(|decision| decision.end.is_none()));
    house.egress.stop().await;
    let [decision] = house.door.recent().try_into().unwrap();
    assert_eq!((decision.times, decision.end.unwrap().received), (50, 250));
}

#[tokio::test]
async fn a_connection_takes_little_memory() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let size = size_of_val(&serve(&house.door, stream, ([1, 1, 1, 1], 1).into()));
    assert!(size < 4096, "{size}");
}
