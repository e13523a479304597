use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;

/// A frame as a client sends it.
fn masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short if short < 126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        middle if middle < 1 << 16 => {
            frame.push(0xfe);
            frame.extend_from_slice(&u16::try_from(middle).unwrap().to_be_bytes());
        }
        long => {
            frame.push(0xff);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// All messages in some bytes, and how it ended.
fn messages(bytes: &[u8]) -> (Vec<Message>, Ended) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut reader = Reader::new(bytes);
        let mut messages = Vec::new();
        loop {
            match reader.message().await {
                Ok(message) => messages.push(message),
                Err(ended) => return (messages, ended),
            }
        }
    })
}

fn violation(bytes: &[u8]) -> Option<Violation> {
    match messages(bytes).1 {
        Ended::Broken => None,
        Ended::Violated(violation) => Some(violation),
    }
}

#[test]
fn control_frames_may_interrupt_a_message() {
    let mut bytes = masked(0x01, b"he", [1, 2, 3, 4]);
    bytes.extend(masked(0x89, b"alive?", [9; 4]));
    bytes.extend(masked(0x00, b"ll", [0; 4]));
    bytes.extend(masked(0x80, b"o", [5, 6, 7, 8]));
    bytes.extend(masked(0x88, &[0x0f, 0xa1, b'x'], [7; 4]));
    let (messages, _) = messages(&bytes);
    let expected = [
        Message::Ping(Bytes::from_static(b"alive?")),
        Message::Text("hello".to_owned()),
        Message::Close(4001),
    ];
    assert_eq!(messages, expected);
}

#[test]
fn what_the_protocol_forbids_ends_the_connection() {
    let protocol = Some(Violation::Protocol);
    assert_eq!(violation(&[0x82, 0x01, b'x']), protocol, "no mask");
    assert_eq!(violation(&masked(0xc2, b"x", [0; 4])), protocol, "a reserved bit");
    assert_eq!(violation(&masked(0x83, b"x", [0; 4])), protocol, "an unknown opcode");
    assert_eq!(violation(&masked(0x80, b"x", [0; 4])), protocol, "nothing to continue");
    let twice = [masked(0x01, b"x", [0; 4]), masked(0x81, b"x", [0; 4])].concat();
    assert_eq!(violation(&twice), protocol, "a message within a message");
    assert_eq!(violation(&masked(0x09, b"x", [0; 4])), protocol, "a fragmented ping");
    assert_eq!(violation(&masked(0x89, &[0; 126], [0; 4])), protocol, "a long ping");
    assert_eq!(violation(&masked(0x88, &[3], [0; 4])), protocol, "half a close code");
    assert_eq!(violation(&masked(0x88, &[3, 0xed], [0; 4])), protocol, "1005 on the wire");
    assert_eq!(violation(&masked(0x81, &[0xff], [0; 4])), Some(Violation::NotText));
}

#[test]
fn no_message_is_longer_than_the_limit() {
    let mut declared = vec![0x82, 0xff];
    declared.extend_from_slice(&u64::MAX.to_be_bytes());
    assert_eq!(violation(&declared), Some(Violation::TooLong));
    let long = masked(0x82, &vec![7; 70_000], [1, 2, 3, 4]);
    assert_eq!(messages(&long).0, [Message::Binary(vec![7; 70_000].into())]);
    let mut pieces = masked(0x02, &vec![0; MESSAGE_LIMIT], [0; 4]);
    pieces.extend(masked(0x80, b"x", [0; 4]));
    assert_eq!(violation(&pieces), Some(Violation::TooLong));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_end_in_order(bytes: Vec<u8>) {
        messages(&bytes);
    }

    #[test]
    fn a_message_arrives_whole_however_it_is_cut(
        payload in proptest::collection::vec(any::<u8>(), 0..2000),
        mask: [u8; 4],
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(payload.len() + 1)).collect();
        cuts.extend([0, payload.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &payload[pair[0]..pair[1]]).collect();
        let count = pieces.len();
        let bytes: Vec<u8> = pieces
            .iter()
            .enumerate()
            .flat_map(|(index, piece)| {
                let opcode = if index == 0 { 2 } else { 0 };
                let last = if index + 1 == count { 0x80 } else { 0 };
                masked(opcode | last, piece, mask)
            })
            .collect();
        let (messages, _) = messages(&bytes);
        prop_assert_eq!(messages, [Message::Binary(payload.into())]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_given_up() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let mut writer = Writer::new(ours);
    let error = writer.binary(&[&[0; 4096]]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    theirs.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_follows_a_violation_is_read_to_its_end() {
    let (mut client, server) = tokio::io::duplex(64);
    let sending = async move { client.write_all(&[0xff; 10_000]).await };
    let draining = async move { Reader::new(server).drain().await };
    let (sent, ()) = tokio::join!(sending, draining);
    sent.unwrap();
}
