use std::sync::Arc;

use super::*;
use crate::{
    dns::{Reply, ask},
    door::Target,
    testing::{TestHouse, only, policy},
};

async fn reply(house: &TestHouse, name: &str, kind: u16) -> Reply {
    let question = ask(7, &Name::parse(name).unwrap(), kind, true);
    let answer = answer(&house.door, &question).await.unwrap();
    Reply::read(&answer.datagram(), &question).unwrap()
}

#[tokio::test]
async fn a_name_that_is_allowed_has_an_address_that_stands_for_it() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let first = reply(&house, "a.test", kind::A).await;
    assert_eq!((first.addresses.len(), first.seconds), (1, Some(KEPT)));
    let name = Name::parse("a.test").unwrap();
    assert_eq!(house.door.target(first.addresses[0]), Ok(Target::Name(name)));
    assert_eq!(reply(&house, "A.TEST", kind::A).await, first);
}

#[tokio::test]
async fn a_name_that_is_denied_does_not_exist_and_is_asked_of_nobody() {
    let house = TestHouse::start(only(&["a.test"])).await;
    for kind in [kind::A, kind::AAAA, 16, 15, kind::ANY, kind::PTR] {
        assert_eq!(reply(&house, "b.test", kind).await.code, Code::NoSuchName as u8);
    }
    assert_eq!(house.resolver.asked(), []);
    let recent = house.door.recent();
    assert_eq!((recent.len(), recent[0].times, &recent[0].ruling.by), (1, 6, &By::Default));
}

#[tokio::test]
async fn what_does_not_exist_is_not_given_an_address() {
    let house = TestHouse::start(only(&["none.test", "failing.test"])).await;
    assert_eq!(reply(&house, "none.test", kind::A).await.code, Code::NoSuchName as u8);
    assert_eq!(reply(&house, "failing.test", kind::A).await.code, Code::Failed as u8);
}

#[tokio::test]
async fn records_that_would_lead_past_the_address_are_not_there() {
    let house = TestHouse::start(only(&["a.test"])).await;
    for kind in [kind::HTTPS, kind::SVCB] {
        let reply = reply(&house, "a.test", kind).await;
        assert_eq!((reply.code, reply.seconds), (Code::Fine as u8, None));
    }
    assert_eq!(reply(&house, "a.test", kind::ANY).await.code, Code::Refused as u8);
    assert_eq!(reply(&house, "a.test", 252).await.code, Code::Refused as u8);
}

#[tokio::test]
async fn other_records_are_asked_of_others() {
    let house = TestHouse::start(only(&["a.test"])).await;
    assert_eq!(reply(&house, "a.test", 16).await.code, Code::Fine as u8);
    assert_eq!(house.resolver.asked(), [("a.test".to_owned(), 16)]);
}

#[tokio::test]
async fn an_address_that_stands_for_a_name_leads_back_to_it() {
    let house = TestHouse::start(only(&["a.test"])).await;
    let address = reply(&house, "a.test", kind::A).await.addresses[0];
    let IpAddr::V4(v4) = address else { panic!("{address}") };
    let [a, b, c, d] = v4.octets();
    let about = reply(&house, &format!("{d}.{c}.{b}.{a}.in-addr.arpa"), kind::PTR).await;
    assert_eq!((about.code, about.seconds), (Code::Fine as u8, Some(KEPT)));
    let nobody = reply(&house, "255.255.19.198.in-addr.arpa", kind::PTR).await;
    assert_eq!(nobody.code, Code::NoSuchName as u8);
}

#[tokio::test]
async fn an_address_that_is_not_to_be_reached_has_no_name() {
    let house = TestHouse::start(policy(r#"{"defaultAction":"allow"}"#)).await;
    let nibbles = "0.".repeat(29);
    for guarded in ["1.0.0.10.in-addr.arpa", &format!("1.{nibbles}d.f.ip6.arpa")] {
        assert_eq!(reply(&house, guarded, kind::PTR).await.code, Code::NoSuchName as u8);
    }
    assert_eq!(house.resolver.asked(), []);
    reply(&house, "1.1.1.1.in-addr.arpa", kind::PTR).await;
    assert_eq!(house.resolver.asked(), [("1.1.1.1.in-addr.arpa".to_owned(), kind::PTR)]);
}

#[tokio::test]
async fn long_names_and_many_names_below_a_domain_are_refused() {
    refused_below(only(&["*.w.test"])).await;
    let gets = r#"{"egress":[{"action":"allow","target":"*.w.test","methods":["GET"]}]}"#;
    refused_below(policy(gets)).await;
}

async fn refused_below(policy: Arc<Policy>) {
    let house = TestHouse::start(policy).await;
    assert_eq!(reply(&house, "x.w.test", kind::A).await.code, Code::Fine as u8);
    let long = format!("{}.{}.w.test", "a".repeat(60), "b".repeat(60));
    assert_eq!(reply(&house, &long, kind::A).await.code, Code::Refused as u8);
    let mut refused = 0;
    for n in 0..300 {
        let reply = reply(&house, &format!("n{n}.w.test"), 16).await;
        refused += u32::from(reply.code == Code::Refused as u8);
    }
    assert!(refused > 50, "{refused} of 300 were refused");
    assert_eq!(reply(&house, "x.w.test", kind::A).await.code, Code::Fine as u8);
}

#[tokio::test]
async fn the_host_itself_needs_no_resolver() {
    let house = TestHouse::start(only(&[])).await;
    let address: IpAddr = "127.0.0.1".parse().unwrap();
    assert_eq!(reply(&house, "localhost", kind::A).await.addresses, [address]);
    assert_eq!(reply(&house, "x.localhost", kind::AAAA).await.addresses.len(), 1);
}

#[tokio::test]
async fn who_asks_too_often_hears_nothing_whatever_is_asked() {
    let house = TestHouse::start(only(&[])).await;
    // Two questions in one.
    let malformed = [0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    assert!(answer(&house.door, &malformed).await.is_some());
    while house.door.questions.take(1.0).is_ok() {}
    assert!(answer(&house.door, &malformed).await.is_none());
    // But it is written down.
    let by: Vec<_> = house.door.recent().into_iter().map(|decision| decision.ruling.by).collect();
    assert_eq!(by, [By::Default, By::Limit]);
}
