use proptest::{collection::vec, prelude::*};

use super::*;

const TYPE: &str = "multipart/form-data; boundary=xyz";

type Part = (Option<String>, Vec<u8>);

/// The parts of a form that arrives in pieces of a size.
fn read(body: &[u8], size: usize) -> Result<Vec<Part>, FormError> {
    let mut form = Form::new(TYPE).unwrap();
    let (mut parts, mut current) = (Vec::new(), None);
    for chunk in body.chunks(size) {
        form.feed(Bytes::copy_from_slice(chunk));
        while let Some(piece) = form.next()? {
            match piece {
                Piece::Begin(name) => assert!(current.replace((name, Vec::new())).is_none()),
                Piece::Content(bytes) => {
                    assert!(!bytes.is_empty());
                    current.as_mut().unwrap().1.extend_from_slice(&bytes);
                }
                Piece::Complete => parts.push(current.take().unwrap()),
            }
        }
    }
    form.finish().map(|()| parts)
}

fn part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

#[test]
fn parts_are_found_however_they_are_written() {
    let body = b"preamble\r\n--xyz \t\r\ncontent-type: a/b\r\nCONTENT-DISPOSITION:form-data; \
                 filename=\"a \\\"; name=no\"; name=file\r\n\r\n\r\n--xy\r\n--xyz\r\n\r\nplain\r\n--xyz--epilogue";
    for size in [1, 2, 3, 7, 1000] {
        let parts = read(body, size).unwrap();
        assert_eq!(
            parts,
            [(Some("file".to_owned()), b"\r\n--xy".to_vec()), (None, b"plain".to_vec())],
            "{size}"
        );
    }
    assert_eq!(read(b"--xyz--", 3), Ok(vec![]));
}

#[test]
fn what_is_no_form_is_told() {
    let whole = [part("a", b"content"), b"--xyz--\r\n".to_vec()].concat();
    for end in 0..whole.len() - 4 {
        assert_eq!(read(&whole[..end], 5), Err(FormError::BrokenOff), "{end}");
    }
    assert_eq!(read(b"--xyzzy\r\n", 4), Err(FormError::Boundary));
    let padded = [b"--xyz".to_vec(), vec![b' '; 300]].concat();
    assert_eq!(read(&padded, 50), Err(FormError::Boundary));
    let long = [b"--xyz\r\n".to_vec(), vec![b'a'; HEAD + 4]].concat();
    assert_eq!(read(&long, 1000), Err(FormError::LongHead));
}

#[test]
fn the_boundary_is_in_the_content_type() {
    for content_type in [
        "multipart/form-data; boundary=xyz",
        "Multipart/Form-Data;charset=utf-8;boundary=\"xyz\"",
        "multipart/form-data; flag; boundary=xyz ; x=y",
    ] {
        let form = Form::new(content_type).unwrap();
        assert_eq!(form.delimiter.needle(), b"\r\n--xyz", "{content_type}");
    }
    for content_type in [
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=xyz",
    ] {
        assert!(Form::new(content_type).is_none(), "{content_type}");
    }
}

proptest! {
    #[test]
    fn any_content_arrives_as_it_was_sent(
        contents in vec("(\r|\n|-|x|y|z|--xy|\r\n--x|[^xyz]){0,12}", 0..4), size in 1..20_usize,
    ) {
        prop_assume!(contents.iter().all(|content| !format!("\r\n{content}").contains("\r\n--xyz")));
        let mut body: Vec<u8> =
            contents.iter().flat_map(|content| part("p", content.as_bytes())).collect();
        body.extend_from_slice(b"--xyz--\r\n");
        let expected: Vec<_> = contents
            .into_iter()
            .map(|content| (Some("p".to_owned()), content.into_bytes()))
            .collect();
        prop_assert_eq!(read(&body, size), Ok(expected));
    }

    #[test]
    fn nothing_panics_and_the_cut_does_not_matter(
        body in vec(prop_oneof![
            Just(b"--xyz".to_vec()), Just(b"\r\n".to_vec()), Just(b"--".to_vec()),
            Just(b"Content-Disposition: form-data; name=\"a\"".to_vec()), vec(any::<u8>(), 0..5),
        ], 0..20),
        size in 1..30_usize,
    ) {
        let body = body.concat();
        prop_assert_eq!(read(&body, size), read(&body, usize::MAX));
    }

    #[test]
    fn no_content_type_panics(content_type in "(multipart/form-data)?[; =\"\\\\a-z]{0,30}") {
        drop(Form::new(&content_type));
    }
}
