use std::collections::{BTreeMap, HashMap, HashSet};

use osb_sys::fs;
use rustix::process::Pid;

/// All processes that are alive, as the kernel lists them.
#[derive(Debug)]
pub(super) struct Table(BTreeMap<i32, Row>);

/// What the kernel tells of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    /// None for the first processes of a machine or of a namespace.
    pub(super) session: Option<Pid>,
    /// In ticks since the machine began: a number with its beginning is never used again.
    pub(super) began: u64,
}

impl Table {
    pub(super) fn read() -> Self {
        let names = fs::names("/proc").unwrap_or_default();
        let pids = names.iter().filter_map(|name| Pid::from_raw(name.parse().ok()?));
        let rows = pids.filter_map(Row::read).map(|row| (row.pid.as_raw_pid(), row));
        Self(rows.collect())
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Row> {
        self.0.get(&pid.as_raw_pid())
    }

    pub(super) fn children(self, parent: Pid) -> Vec<Row> {
        self.0.into_values().filter(|row| row.parent == Some(parent)).collect()
    }

    /// Those that belong, and everybody who comes from one of them.
    pub(super) fn with_descendants(&self, belongs: impl Fn(&Row) -> bool) -> Vec<&Row> {
        let mut children: HashMap<Pid, Vec<&Row>> = HashMap::new();
        for row in self.0.values() {
            if let Some(parent) = row.parent {
                children.entry(parent).or_default().push(row);
            }
        }
        let mut found: Vec<&Row> = self.0.values().filter(|row| belongs(row)).collect();
        let mut seen: HashSet<Pid> = found.iter().map(|row| row.pid).collect();
        let mut at = 0;
        while let Some(row) = found.get(at) {
            let born = children.get(&row.pid).into_iter().flatten();
            found.extend(born.filter(|row| seen.insert(row.pid)).copied().collect::<Vec<_>>());
            at += 1;
        }
        found
    }
}

impl Row {
    /// None for a process that has ended, also if nobody has waited for it yet.
    pub(super) fn read(pid: Pid) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
    }

    /// `pid (name) state parent group session …`, where the name is any bytes at all, with the
    /// number of threads as the twentieth field and the beginning as the twenty-second (`proc_pid_stat`(5)).
    fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
        let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let has_ended = ["Z", "X", "x"].contains(&fields.next()?);
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads: u64 = fields.nth(13)?.parse().ok()?;
        // The first thread may have ended before the others, and then the process has not.
        if has_ended && threads <= 1 {
            return None;
        }
        let began = fields.nth(1)?.parse().ok()?;
        let process = |number: i32| Pid::from_raw(number).filter(|_| number > 0);
        let (parent, group, session) = (process(parent), process(group), process(session));
        Some(Self { pid, parent, group, session, began })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn table(rows: &[(i32, i32, i32)]) -> Table {
        let row = |&(number, parent, session): &(i32, i32, i32)| {
            let (parent, session) = (Some(pid(parent)), Some(pid(session)));
            (number, Row { pid: pid(number), parent, group: session, session, began: 1 })
        };
        Table(rows.iter().map(row).collect())
    }

    #[test]
    fn descendants_belong_and_daemons_do_not() {
        let table = table(&[
            (10, 1, 10),  // The leader,
            (11, 10, 10), // its child,
            (12, 11, 12), // a grandchild in a session of its own,
            (13, 1, 10),  // an orphan of the session,
            (14, 13, 14), // whose child has a session of its own;
            (20, 1, 20),  // a daemon,
            (21, 20, 20), // and its child.
        ]);
        let found = table.with_descendants(|row| row.session == Some(pid(10)));
        let mut found: Vec<_> = found.iter().map(|row| row.pid.as_raw_pid()).collect();
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_circle_of_parents_is_walked_once() {
        let table = table(&[(10, 11, 10), (11, 10, 10), (12, 12, 12)]);
        assert_eq!(table.with_descendants(|row| row.pid == pid(10)).len(), 2);
        assert_eq!(table.with_descendants(|row| row.pid == pid(12)).len(), 1);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let own = rustix::process::getpid();
        let row = Table::read().get(own).cloned().unwrap();
        assert_eq!(row.parent, rustix::process::getppid());
        let told = fs::read("/proc/self/stat").unwrap();
        assert_eq!(Row::parse(own, &told), Some(row.clone()));
        assert_eq!(Row::read(own), Some(row));
    }

    #[test]
    fn a_process_is_alive_as_long_as_one_of_its_threads() {
        let stat = |state: &str, threads: u32| {
            let text = format!("7 (a) {state} 3 4 5 0 0 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0");
            Row::parse(pid(7), text.as_bytes())
        };
        for (state, threads, is_alive) in
            [("S", 1, true), ("Z", 1, false), ("Z", 2, true), ("X", 0, false)]
        {
            let row = stat(state, threads);
            assert_eq!(row.is_some(), is_alive, "{state} {threads}");
            assert!(row.is_none_or(|row| row.began == 99));
        }
    }

    proptest! {
        #[test]
        fn any_name_is_skipped(name in vec(any::<u8>(), 0..16), began in any::<u64>()) {
            let mut stat = b"7 (".to_vec();
            stat.extend_from_slice(&name);
            stat.extend_from_slice(b") S 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 ");
            stat.extend_from_slice(format!("{began} 23 24\n").as_bytes());
            let [parent, group, session] = [3, 4, 5].map(Pid::from_raw);
            let expected = Row { pid: pid(7), parent, group, session, began };
            prop_assert_eq!(Row::parse(pid(7), &stat), Some(expected));
        }

        #[test]
        fn any_bytes_are_read_without_harm(stat in vec(any::<u8>(), 0..200)) {
            prop_assert!(Row::parse(pid(7), &stat).is_none_or(|row| row.pid == pid(7)));
        }
    }
}
