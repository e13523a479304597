use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::{
    Settings,
    testing::{TestHouse, only},
};

/// What arrives, one request after the other, each answered by the next of `answers`.
async fn receiver(answers: &'static [&'static str]) -> (u16, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, received) = mpsc::channel(16);
    tokio_util::task::TaskTracker::new().spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut said = Vec::new();
            let body = loop {
                stream.read_buf(&mut said).await.unwrap();
                let text = String::from_utf8_lossy(&said);
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
                if let Some(body) = body.and_then(|body| serde_json::from_str(body).ok()) {
                    break body;
                }
            };
            let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            send.send(body).await.unwrap();
        }
    });
    (port, received)
}

#[tokio::test]
async fn denials_are_told_and_told_again_if_the_other_side_fails() {
    let (port, mut received) = receiver(&["503 busy", "204 fine", "404 no"]).await;
    let webhook = Webhook::parse(&format!("http://127.0.0.1:{port}/hook?key=1")).unwrap();
    let settings = Settings { deny_webhook: Some(webhook), ..Settings::default() };
    let house = TestHouse::with(only(&["a.test"]), settings).await;
    drop(house.connect(house.address("b.test", 443)).await);
    let first = received.recv().await.unwrap();
    assert_eq!(first["hostname"], "b.test");
    assert_eq!(first["source"], "opensandbox-egress");
    assert_eq!((&first["protocol"], &first["reason"]), (&json!("tcp"), &json!("default")));
    assert_eq!(first["sandboxId"], house.door.id.to_string());
    assert_eq!(received.recv().await.unwrap(), first);
    drop(house.connect(([169, 254, 169, 254], 80).into()).await);
    let second = received.recv().await.unwrap();
    assert_eq!(
        (&second["hostname"], &second["reason"]),
        (&json!("169.254.169.254"), &json!("guard"))
    );
    loop {
        let [(_, delivered), (_, failed), (_, dropped)] = house.egress.counts().told;
        if (delivered, failed) == (1, 1) {
            assert_eq!(dropped, 0);
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn denial(sandbox: SandboxId, number: u64) -> Arc<Decision> {
    Arc::new(Decision {
        number,
        sandbox,
        at: jiff::Timestamp::UNIX_EPOCH,
        what: crate::Attempt {
            protocol: crate::Protocol::Tcp,
            name: None,
            address: None,
            port: 443,
            request: None,
        },
        ruling: crate::Ruling { verdict: Verdict::Deny, by: By::Default },
        times: 1,
        end: None,
    })
}

#[tokio::test]
async fn however_much_one_sandbox_is_denied_others_are_heard_of() {
    let (port, mut received) = receiver(&["204 fine"; 16]).await;
    let webhook = Webhook::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
    let (loud, quiet) = (SandboxId::random(), SandboxId::random());
    let (send, decisions) = broadcast::channel(1024);
    for number in 0..500 {
        send.send(denial(loud, number)).unwrap();
    }
    send.send(denial(quiet, 0)).unwrap();
    let (told, clock) = (Arc::new(Told::default()), Arc::new(osb_core::SystemClock));
    let running = webhook.run(decisions, Interceptor::new(None, clock), told.clone());
    let hearing =
        async { while received.recv().await.unwrap()["sandboxId"] != quiet.to_string() {} };
    tokio::select! {
        () = running => unreachable!("there may be more"),
        () = hearing => {}
    }
    assert!(told.dropped.load(Relaxed) >= 400);
}

#[test]
fn sandboxes_are_told_of_in_turns() {
    let [one, other, third] = [(); 3].map(|()| SandboxId::random());
    let mut waiting = Waiting::default();
    let added = (0..50).filter(|number| waiting.add(denial(one, *number))).count();
    assert_eq!(added, WAITING);
    assert!(waiting.add(denial(other, 0)) && waiting.add(denial(third, 0)));
    let told: Vec<_> = std::iter::from_fn(|| waiting.next()).collect();
    let first: Vec<_> = told.iter().take(4).map(|it| (it.sandbox, it.number)).collect();
    assert_eq!(first, [(one, 0), (other, 0), (third, 0), (one, 1)]);
    assert_eq!(told.len(), WAITING + 2);
    assert!(waiting.each.is_empty() && waiting.turns.is_empty());
}

#[test]
fn an_address_is_a_url_without_a_password() {
    for (url, host, port) in
        [("https://hooks.example/x?y", "hooks.example", 443), ("http://[::1]:8080/", "::1", 8080)]
    {
        let parsed = Webhook::parse(url).unwrap();
        assert_eq!((parsed.host.as_str(), parsed.port), (host, port));
        assert!(!format!("{parsed:?}").contains("x?y"));
    }
    for url in ["", "hooks.example", "ftp://x/", "https://u:p@x/", "/x", "https://"] {
        assert_eq!(Webhook::parse(url), None, "{url}");
    }
}
