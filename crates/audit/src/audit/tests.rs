use std::{path::PathBuf, time::Duration};

use serde_json::{Value, from_str};

use super::*;
use crate::{Fault, Verified, book::volumes, read};

#[derive(Debug, Serialize)]
struct Said {
    text: String,
    #[serde(skip)]
    kind: &'static str,
}

impl Entry for Said {
    fn at(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn share(&self) -> &'static str {
        self.kind
    }

    fn about(&self) -> u64 {
        0
    }
}

fn said(text: &str) -> Said {
    Said { text: text.to_owned(), kind: "said" }
}

/// A directory for books, and the sandbox that most of them are about.
struct Library {
    directory: tempfile::TempDir,
    sandbox: SandboxId,
}

impl Library {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), sandbox: SandboxId::random() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn start(&self) -> Audit<Said> {
        Audit::start(self.path(), Keep::default()).unwrap()
    }

    /// Writes this, by a server that then ends.
    fn write(&self, texts: &[&str]) {
        let audit = self.start();
        for text in texts {
            audit.note(self.sandbox, said(text));
        }
        audit.close();
    }

    fn finish(&self) {
        let audit = self.start();
        audit.finish(self.sandbox);
        audit.close();
    }

    fn verify(&self) -> Result<Verified, Fault> {
        read(self.path(), self.sandbox, |_| Ok(()))
    }

    fn book(&self) -> PathBuf {
        self.path().join(self.sandbox.to_string())
    }

    fn file(&self, volume: u64) -> PathBuf {
        self.book().join(format!("{volume:06}.jsonl"))
    }

    /// What is in the files of a sandbox, oldest first.
    fn lines(&self, sandbox: SandboxId) -> Vec<Value> {
        let files = volumes(&self.path().join(sandbox.to_string())).unwrap();
        let text: String =
            files.iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect();
        text.lines().map(|line| from_str(line).unwrap()).collect()
    }

    fn texts(&self, sandbox: SandboxId) -> Vec<String> {
        let said = |line: &Value| Some(line["what"]["text"].as_str()?.to_owned());
        self.lines(sandbox).iter().filter_map(said).collect()
    }

    fn kinds(&self) -> Vec<String> {
        let kind = |line: &Value| line["kind"].as_str().unwrap().to_owned();
        self.lines(self.sandbox).iter().map(kind).collect()
    }
}

#[test]
fn what_is_noted_is_written_in_order_and_goes_on_after_a_restart() {
    let library = Library::new();
    let (one, other) = (library.sandbox, SandboxId::random());
    for round in 0..3 {
        let audit = library.start();
        for number in 0..100 {
            audit.note(one, said(&format!("{round} {number}")));
            audit.note(other, said(&format!("other {round} {number}")));
        }
        audit.close();
        assert_eq!(audit.counts(), Counts { written: 200, too_many: 0, failed: 0 });
    }
    let expected: Vec<_> = (0..300).map(|n| format!("{} {}", n / 100, n % 100)).collect();
    assert_eq!(library.texts(one), expected);
    assert_eq!(library.texts(other).len(), 300);
    let verified = library.verify().unwrap();
    assert_eq!((verified.first, verified.last), (1, 301));
    assert!(!verified.is_finished && !verified.is_torn);
    let last = library.lines(one).pop().unwrap();
    assert_eq!(last["hash"], verified.hash);
    assert_eq!(last["sandbox"], one.to_string());
    let mut both = [one, other];
    both.sort_unstable();
    assert_eq!(crate::books(library.path()).unwrap(), both);
}

#[test]
fn whatever_is_changed_is_found() {
    let library = Library::new();
    library.write(&["first", "second", "third"]);
    let file = library.file(1);
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let without = |place: usize| {
        let mut lines = lines.clone();
        lines.remove(place);
        lines
    };
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    let changed = whole.replace("second", "decent");
    for (text, line) in [
        (changed.clone(), 3),
        (without(0).join("\n") + "\n", 1),
        (without(2).join("\n") + "\n", 3),
        (swapped.join("\n") + "\n", 3),
        (whole.replace("\"number\":3", "\"number\":7"), 3),
        (whole.replace("\"hash\"", "\"hush\""), 1),
        (whole.replacen("},\"hash\"", "} ,\"hash\"", 1), 1),
        (whole.replace(&library.sandbox.to_string(), &SandboxId::random().to_string()), 1),
    ] {
        fs::write(&file, &text).unwrap();
        let fault = library.verify().unwrap_err();
        assert!(matches!(fault, Fault::Broken { line: at, .. } if at == line), "{text}: {fault}");
    }
    // What is damaged stays for those who look at it, and what comes later is written elsewhere.
    fs::write(&file, &changed).unwrap();
    library.write(&["later"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), changed);
    assert_eq!(library.texts(library.sandbox).pop().unwrap(), "later");
    let fault = library.verify().unwrap_err().to_string();
    assert!(fault.starts_with("entry 3 does not fit the one before it"), "{fault}");
}

#[test]
fn what_a_crash_left_of_a_line_is_cut_off() {
    let library = Library::new();
    library.write(&["whole"]);
    let file = library.file(1);
    let whole = fs::read_to_string(&file).unwrap();
    for length in [0, 1, whole.find('\n').unwrap() + 1, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        library.write(&["after"]);
        library.verify().unwrap();
        assert_eq!(library.texts(library.sandbox), ["after"], "{length}");
    }
    // Until then it is no fault.
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let verified = library.verify().unwrap();
    assert!(verified.is_torn && verified.last == 1);
    // The next file was made, and nothing was written to it.
    fs::write(&file, &whole).unwrap();
    fs::write(library.file(2), "").unwrap();
    library.write(&["next"]);
    assert_eq!(library.texts(library.sandbox), ["whole", "next"]);
    assert_eq!(library.verify().unwrap().last, 4);
    // A piece before something else is none of a crash.
    fs::write(&file, whole + "{").unwrap();
    assert!(matches!(library.verify(), Err(Fault::Broken { number: 3, line: 3, .. })));
}

#[test]
fn a_line_that_is_cut_off_while_a_server_writes_is_missed_by_the_next() {
    let library = Library::new();
    let audit = library.start();
    audit.note(library.sandbox, said("first"));
    wait_for(|| audit.counts().written == 1);
    let begun = fs::read_to_string(library.file(1)).unwrap().find('\n').unwrap() + 1;
    let text = fs::read_to_string(library.file(1)).unwrap();
    fs::write(library.file(1), &text[..begun]).unwrap();
    audit.note(library.sandbox, said("second"));
    audit.close();
    assert!(matches!(library.verify(), Err(Fault::Broken { number: 2, .. })));
}

#[test]
fn what_is_too_much_is_counted_and_hides_nothing_of_another_kind_or_sandbox() {
    let library = Library::new();
    let other = SandboxId::random();
    let audit = library.start();
    for number in 0..20_000 {
        audit.note(library.sandbox, said(&format!("{number}")));
    }
    audit.note(library.sandbox, Said { text: "another".to_owned(), kind: "seen" });
    audit.note(other, said("quiet"));
    audit.finish(library.sandbox);
    audit.close();
    let lines = library.lines(library.sandbox);
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count() as u64;
    assert_eq!(of("seen"), 1);
    let missed = lines.iter().filter(|line| line["kind"] == "missed");
    let missed: u64 = missed
        .map(|line| {
            assert_eq!(line["what"]["of"], "said");
            line["what"]["count"].as_u64().unwrap()
        })
        .sum();
    assert_eq!(of("said") + missed, 20_000);
    assert!(missed > 15_000, "{missed}");
    let written = of("said") + 2;
    assert_eq!(audit.counts(), Counts { written, too_many: missed, failed: 0 });
    assert_eq!(library.texts(other), ["quiet"]);
}

#[test]
fn what_is_missed_is_told_soon_although_nothing_else_happens() {
    let library = Library::new();
    let audit = library.start();
    for number in 0..20_000 {
        audit.note(library.sandbox, said(&format!("{number}")));
    }
    wait_for(|| library.book().exists() && library.kinds().contains(&"missed".to_owned()));
}

#[test]
fn a_book_has_a_last_line() {
    let library = Library::new();
    // Of whoever did nothing there is no book.
    library.finish();
    assert!(!library.book().exists());
    library.write(&["one"]);
    for _ in 0..2 {
        library.finish();
        assert_eq!(library.kinds(), ["begun", "said", "finished"]);
        assert!(library.verify().unwrap().is_finished);
    }
    // What comes late is followed by another.
    library.write(&["late"]);
    assert_eq!(library.kinds(), ["begun", "said", "finished", "said", "finished"]);
    let audit = library.start();
    audit.finish(library.sandbox);
    audit.note(library.sandbox, said("later"));
    audit.close();
    assert_eq!(library.kinds()[5..], ["said", "finished"]);
    assert!(library.verify().unwrap().is_finished);
}

#[test]
fn what_cannot_be_written_is_counted_and_told_of_later() {
    let library = Library::new();
    let audit = library.start();
    // Nobody, not even root, makes a directory where a file is.
    fs::write(library.book(), "").unwrap();
    for _ in 0..10 {
        audit.note(library.sandbox, said("lost"));
    }
    wait_for(|| audit.counts().failed == 10);
    fs::remove_file(library.book()).unwrap();
    audit.note(library.sandbox, said("found"));
    audit.close();
    assert_eq!(audit.counts(), Counts { written: 1, too_many: 0, failed: 10 });
    let missed = library.lines(library.sandbox).into_iter().filter(|line| line["kind"] == "missed");
    let missed: Vec<_> = missed.map(|line| line["what"].clone()).collect();
    assert_eq!(missed, [serde_json::json!({"of": "said", "count": 10})]);
    library.verify().unwrap();
}

#[test]
fn a_book_that_could_not_be_finished_is_finished_later() {
    let library = Library::new();
    library.write(&["one"]);
    let audit = library.start();
    let aside = library.path().join("aside");
    fs::rename(library.book(), &aside).unwrap();
    fs::write(library.book(), "").unwrap();
    audit.note(library.sandbox, said("lost"));
    audit.finish(library.sandbox);
    wait_for(|| audit.counts().failed == 1);
    fs::remove_file(library.book()).unwrap();
    fs::rename(&aside, library.book()).unwrap();
    wait_for(|| library.verify().unwrap().is_finished);
    assert_eq!(library.kinds(), ["begun", "said", "missed", "finished"]);
}

#[test]
fn what_is_no_book_or_cannot_be_read_keeps_nothing_else_from_being_thrown_away() {
    let library = Library::new();
    library.write(&["one"]);
    fs::write(library.path().join("notes"), "").unwrap();
    fs::write(library.path().join(SandboxId::random().to_string()), "").unwrap();
    let keep = Keep { age: Duration::ZERO, ..Keep::default() };
    Audit::<Said>::start(library.path(), keep).unwrap().close();
    assert!(!library.book().exists());
    assert_eq!(fs::count_entries(library.path()).unwrap(), 2);
}

#[test]
fn a_long_book_has_many_files_and_the_largest_loses_first() {
    let library = Library::new();
    let other = SandboxId::random();
    let long = "x".repeat(16 << 10);
    let audit = library.start();
    audit.note(other, said("short"));
    audit.close();
    for _ in 0..3 {
        let audit = library.start();
        for _ in 0..400 {
            audit.note(library.sandbox, said(&long));
        }
        audit.close();
    }
    let files = volumes(&library.book()).unwrap();
    assert!(files.len() > 2, "{files:?}");
    let whole = library.verify().unwrap();
    assert_eq!((whole.first, whole.last), (1, 1200 + files.len() as u64));
    // A file in the middle is missed.
    let aside = library.path().join("aside");
    fs::rename(library.file(2), &aside).unwrap();
    assert!(matches!(library.verify(), Err(Fault::Broken { line: 1, .. })));
    fs::rename(&aside, library.file(2)).unwrap();
    let keep = Keep { bytes: 12 << 20, ..Keep::default() };
    Audit::<Said>::start(library.path(), keep).unwrap().close();
    let left = library.verify().unwrap();
    assert!(left.first > 1, "{left:?}");
    assert_eq!((left.last, &left.hash), (whole.last, &whole.hash));
    assert_eq!(library.texts(other), ["short"]);
    let keep = Keep { age: Duration::ZERO, ..keep };
    Audit::<Said>::start(library.path(), keep).unwrap().close();
    assert_eq!(fs::count_entries(library.path()).unwrap(), 0);
}

fn wait_for(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}
