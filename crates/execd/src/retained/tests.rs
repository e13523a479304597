use futures_util::TryStreamExt;
use proptest::{collection::vec, prelude::*};

use super::*;

fn all(retained: &Retained, cursor: u64) -> Vec<u8> {
    let (mut bytes, mut cursor) = (Vec::new(), cursor);
    loop {
        let piece = retained.read(cursor, 1000).unwrap();
        if piece.bytes.is_empty() {
            return bytes;
        }
        bytes.extend(piece.bytes);
        cursor = piece.next;
    }
}

#[test]
fn a_reader_goes_on_where_it_stopped() {
    let retained = Retained::new(1 << 20);
    assert_eq!(retained.read(0, 10).unwrap(), Piece { bytes: Vec::new(), next: 0 });
    retained.append(b"hello ");
    retained.append(b"world");
    assert_eq!(retained.read(0, 5).unwrap(), Piece { bytes: b"hello".to_vec(), next: 5 });
    assert_eq!(retained.read(5, 99).unwrap(), Piece { bytes: b" world".to_vec(), next: 11 });
    assert_eq!(retained.read(11, 99).unwrap(), Piece { bytes: Vec::new(), next: 11 });
    assert_eq!(retained.read(500, 99).unwrap(), Piece { bytes: Vec::new(), next: 500 });
    assert!(!retained.has_file());
}

#[test]
fn the_oldest_bytes_make_room_for_the_newest() {
    let retained = Retained::new(10_000);
    for line in 0..5_000 {
        retained.append(format!("{line:04}\n").as_bytes());
    }
    assert_eq!((retained.start(), retained.end()), (15_000, 25_000));
    let kept = all(&retained, 0);
    assert!(kept.starts_with(b"3000\n3001\n") && kept.ends_with(b"4999\n"));
    assert_eq!(kept.len(), 10_000);
    retained.append(&"x".repeat(30_000).into_bytes());
    assert_eq!(all(&retained, 0), [b'x'; 10_000]);
    assert_eq!(retained.end(), 55_000);
}

#[test]
fn the_disk_holds_no_more_than_the_limit() {
    let retained = Retained::new(100_000);
    for _ in 0..100 {
        retained.append(&"x".repeat(33_333).into_bytes());
    }
    let file = &retained.ring.get().unwrap().file;
    assert!(file.metadata().unwrap().len() <= 100_000);
}

#[test]
fn a_full_disk_loses_output_and_says_so() {
    let retained = Retained::new(1 << 20);
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    retained.ring.set(Ring { file: full, size: 1 << 20, has_head: false }).unwrap();
    retained.append(b"lost");
    retained.append(b" as well");
    assert_eq!(retained.end(), 12);
    let piece = retained.read(0, 10).unwrap();
    assert_eq!(piece.next, 12);
    let text = String::from_utf8(piece.bytes).unwrap();
    assert!(text.contains("12 bytes of output are lost"), "{text}");
    assert_eq!(retained.read(12, 10).unwrap().bytes, b"");
}

#[test]
fn too_many_gaps_become_one() {
    let mut state = State::default();
    for at in 0..1000 {
        state.add_gap(Gap { from: at * 10, to: at * 10 + 5 });
    }
    assert_eq!(state.gaps.len(), GAPS);
    assert_eq!(state.gaps.last().unwrap().to, 9995);
}

#[tokio::test]
async fn a_stream_is_what_was_written_up_to_its_end() {
    let retained = Arc::new(Retained::new(1 << 20));
    let mut expected = Vec::new();
    for size in [10, 5_000, 200_000] {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        expected.extend_from_slice(&bytes);
        assert_eq!(retained.write(bytes.clone()).await, bytes);
    }
    let end = retained.end();
    let stream = Arc::clone(&retained).stream(3, end);
    retained.append(b"later");
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(pieces.concat(), expected[3..]);
}

#[test]
fn a_reader_beside_a_writer_sees_only_what_was_written() {
    let retained = Arc::new(Retained::new(8 << 10));
    let writer = {
        let retained = Arc::clone(&retained);
        std::thread::spawn(move || {
            for number in 0..200_000_u64 {
                retained.append(&number.to_be_bytes());
            }
        })
    };
    let mut cursor = 0;
    while cursor < 1_600_000 {
        let piece = retained.read(cursor, 4096).unwrap();
        let first = piece.next - piece.bytes.len() as u64;
        for (at, &byte) in (first..).zip(&piece.bytes) {
            assert_eq!(byte, (at / 8).to_be_bytes()[usize::try_from(at % 8).unwrap()]);
        }
        cursor = piece.next;
    }
    writer.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_writes_leave_their_own_tail(
        limit in 1_u64..9_000,
        writes in vec(vec(any::<u8>(), 0..3_000), 0..12),
        cursor in 0_u64..20_000,
    ) {
        let retained = Retained::new(limit);
        for bytes in &writes {
            retained.append(bytes);
        }
        let whole = writes.concat();
        let kept = whole.len().saturating_sub(usize::try_from(limit).unwrap());
        let from = kept.max(usize::try_from(cursor).unwrap()).min(whole.len());
        prop_assert_eq!(retained.end(), whole.len() as u64);
        prop_assert_eq!(retained.start(), kept as u64);
        prop_assert_eq!(all(&retained, cursor), &whole[from..]);
    }
}

#[test]
fn others_find_the_last_bytes_in_the_file() {
    let file = tempfile::tempfile().unwrap();
    let retained = Retained::in_file(file.try_clone().unwrap());
    let found = || {
        let mut head = [0; output::Head::BYTES];
        file.read_exact_at(&mut head, 0).unwrap();
        let parts = output::Head::from_bytes(head).unwrap().parts();
        let read = |(from, length): (u64, u64)| {
            let mut part = vec![0; usize::try_from(length).unwrap()];
            file.read_exact_at(&mut part, from).unwrap();
            part
        };
        parts.map(read).concat()
    };
    retained.append(b"hello");
    assert_eq!((found(), all(&retained, 0)), (b"hello".to_vec(), b"hello".to_vec()));
    for byte in 0..=255_u8 {
        retained.append(&vec![byte; 10_000]);
    }
    let last = found();
    assert_eq!(last.len() as u64, output::LARGEST);
    assert!(last.ends_with(&[255; 10_000]) && last == all(&retained, 0));
}
