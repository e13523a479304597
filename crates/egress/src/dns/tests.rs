use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn query(text: &str, kind: u16) -> Query {
    Query::read(&ask(7, &name(text), kind, true)).unwrap()
}

#[test]
fn an_answer_of_ours_is_read_like_one_of_others() {
    let asked = ask(7, &name("a.test"), kind::A, true);
    let query = Query::read(&asked).unwrap();
    assert_eq!((query.name.clone(), query.kind), (Some(name("a.test")), kind::A));
    let addresses: Vec<IpAddr> = vec!["198.18.1.0".parse().unwrap(), "fd53::7".parse().unwrap()];
    let records: Vec<_> = addresses.iter().copied().map(Record::Address).collect();
    let reply = Reply::read(&query.answer(Code::Fine, &records, 60), &asked).unwrap();
    assert_eq!(
        reply,
        Reply { code: 0, truncated: false, addresses, aliases: vec![], seconds: Some(60) }
    );
    let none = Reply::read(&query.answer(Code::NoSuchName, &[], 60), &asked).unwrap();
    assert_eq!((none.code, none.seconds), (3, None));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let asked = ask(7, &name("a.test"), kind::A, true);
    let answer = |asked: &[u8]| Query::read(asked).unwrap().answer(Code::Fine, &[], 60);
    assert!(Reply::read(&answer(&asked), &asked).is_some());
    assert_eq!(Reply::read(&answer(&ask(8, &name("a.test"), kind::A, true)), &asked), None);
    assert_eq!(Reply::read(&answer(&ask(7, &name("b.test"), kind::A, true)), &asked), None);
    assert_eq!(Reply::read(&answer(&ask(7, &name("a.test"), kind::AAAA, true)), &asked), None);
    assert_eq!(Reply::read(&asked, &asked), None);
}

/// An answer to a question for `a.test` with these records: the owner, the kind and the content.
fn answer_with(records: &[(&[u8], u16, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let asked = ask(7, &name("a.test"), kind::A, false);
    let mut answer = Query::read(&asked).unwrap().answer(Code::Fine, &[], 0);
    answer[7] = u8::try_from(records.len()).unwrap();
    for (owner, kind, data) in records {
        answer.extend_from_slice(owner);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0, 60]);
        answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend_from_slice(data);
    }
    (answer, asked)
}

#[test]
fn addresses_are_those_of_the_name_or_of_what_it_is_an_alias_of() {
    let (itself, other) = ([0xc0, 12], spell(&name("b.test")));
    let read = |records: &[(&[u8], u16, &[u8])]| {
        let (answer, asked) = answer_with(records);
        let Reply { addresses, aliases, .. } = Reply::read(&answer, &asked).unwrap();
        let texts = |it: &Name| it.to_string();
        (addresses, aliases.iter().map(texts).collect::<Vec<_>>())
    };
    let address: IpAddr = "1.2.3.4".parse().unwrap();
    assert_eq!(read(&[(&other, kind::A, &[1, 2, 3, 4])]), (vec![], vec![]));
    let records = [
        (&other[..], kind::A, &[1, 2, 3, 4][..]),
        (&itself, kind::A, &[5, 6, 7, 8]),
        (&itself, kind::ALIAS, &other),
    ];
    assert_eq!(read(&records), (vec![address], vec!["b.test".to_owned()]));
    // One that is an alias of itself leads nowhere, and ends.
    let (addresses, aliases) = read(&[(&itself, kind::ALIAS, &itself)]);
    assert_eq!((addresses.len(), aliases.len()), (0, Reply::MOST_ALIASES));
}

#[test]
fn only_one_plain_question_is_taken() {
    let asked = ask(7, &name("a.test"), kind::A, false);
    let with = |at: usize, byte: u8| {
        let mut bytes = asked.clone();
        bytes[at] = byte;
        Query::read(&bytes)
    };
    assert_eq!(with(2, 0x80), Err(Bad::Silent));
    for (at, byte) in [(2, 0x28), (5, 2), (5, 0), (7, 1), (12, 0xc0), (12, 0x40), (22, 3)] {
        assert!(matches!(with(at, byte), Err(Bad::Answer(_))), "{at} {byte}");
    }
    assert_eq!(Query::read(&asked[..11]), Err(Bad::Silent));
    assert_eq!(with(13, b'.').unwrap().name, None);
    assert_eq!(with(13, b' ').unwrap().name, None);
    assert_eq!(with(13, 0xe4).unwrap().name, None);
    assert_eq!(with(13, b'A').unwrap().name, Some(name("a.test")));
}

#[test]
fn what_does_not_fit_into_a_datagram_is_left_out_and_said() {
    let query = query("a.test", 16);
    let mut long = query.answer(Code::Fine, &[], 0);
    long.resize(2000, 0);
    let asked = ask(7, &name("a.test"), 16, true);
    let reply = Reply::read(&query.fit(long), &asked).unwrap();
    assert!(reply.truncated && reply.code == 0);
}

#[test]
fn an_answer_that_was_asked_for_by_us_gets_the_spelling_of_the_question() {
    let mut theirs = ask(9, &name("a.test"), 16, false);
    theirs[13] = b'A';
    let query = Query::read(&theirs).unwrap();
    let ours = query.to_ask(1234).unwrap();
    let answer = Query::read(&ours).unwrap().answer(Code::Fine, &[], 0);
    let adopted = query.adopt(answer).unwrap();
    assert_eq!(adopted[..2], [0, 9]);
    assert_eq!(adopted[13], b'A');
    assert!(query.adopt(vec![0; 20]).is_none());
}

#[test]
fn names_of_addresses_are_addresses_backwards() {
    let about = |text| query(text, kind::PTR).reversed().map(|address| address.to_string());
    assert_eq!(about("4.3.2.1.in-addr.arpa").as_deref(), Some("1.2.3.4"));
    let nibbles = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.0.0.0.0.0.0.0.3.5.d.f.ip6.arpa";
    assert_eq!(about(nibbles).as_deref(), Some("fd53:0:0:1::7"));
    for text in ["3.2.1.in-addr.arpa", "5.4.3.2.1.in-addr.arpa", "a.ip6.arpa", "x.test"] {
        assert_eq!(about(text), None, "{text}");
    }
}

#[test]
fn nothing_that_is_cut_off_is_read_or_breaks_anything() {
    let asked = ask(7, &name("a.test"), kind::A, true);
    let query = Query::read(&asked).unwrap();
    let record = Record::Address("1.2.3.4".parse().unwrap());
    let answer = query.answer(Code::Fine, &[record], 60);
    for end in 0..answer.len() {
        drop(Reply::read(&answer[..end], &asked));
        drop(Query::read(&asked[..end.min(asked.len())]));
        drop(query.adopt(answer[..end].to_vec()));
    }
}
