use super::{
    calls,
    program::ARCHITECTURE,
    rules::{ENOSYS, EPERM, Test, Verdict},
    *,
};

const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

fn failed(error: u16) -> u32 {
    libc::SECCOMP_RET_ERRNO | u32::from(error)
}

/// What the kernel does with a filter: the verdict, and whether the arguments were looked at.
fn run(filter: &Filter, architecture: u32, number: u32, arguments: [u32; 6]) -> (u32, bool) {
    let (mut at, mut loaded, mut looked) = (0, 0, false);
    loop {
        let Instruction { code, jt, jf, k } = filter.program[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match code {
            0x20 if k == 0 => loaded = number,
            0x20 if k == 4 => loaded = architecture,
            0x20 => (loaded, looked) = (arguments[(k as usize - 16) / 8], true),
            0x05 => at += k as usize,
            0x15 => jump(loaded == k),
            0x35 => jump(loaded >= k),
            0x45 => jump(loaded & k != 0),
            0x06 => return (k, looked),
            other => panic!("an instruction that the kernel's cache does not know: {other:#x}"),
        }
    }
}

#[test]
fn a_filter_does_what_the_rules_say() {
    for extra in ["", HOST_FILES, ISOLATOR] {
        let rules = Rules::default().read(SANDBOX).unwrap().read(extra).unwrap();
        let filter = Filter::new(&rules).unwrap();
        for number in (0..1024).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            let on = |argument: u8, value: u32| {
                let mut arguments = [0; 6];
                arguments[usize::from(argument)] = value;
                run(&filter, ARCHITECTURE, number, arguments)
            };
            match rules.0.get(&number) {
                None => assert_eq!(on(0, 0), (failed(ENOSYS), false)),
                Some(Verdict::Fail(error)) => assert_eq!(on(0, 0), (failed(*error), false)),
                Some(Verdict::Allow) => assert_eq!(on(0, 0), (ALLOWED, false)),
                Some(Verdict::IfOneLacks([(one, bits), (other, others)])) => {
                    assert_eq!(on(*one, *bits), (ALLOWED, true));
                    assert_eq!(on(*other, *others), (ALLOWED, true));
                    assert_eq!(on(*other, !others), (ALLOWED, true));
                    let mut both = [0; 6];
                    (both[usize::from(*one)], both[usize::from(*other)]) = (*bits, *others);
                    assert_eq!(run(&filter, ARCHITECTURE, number, both), (failed(EPERM), true));
                }
                Some(Verdict::If(argument, test)) => {
                    let (good, bad) = match test {
                        Test::Is(values) => (values.clone(), vec![7777]),
                        Test::IsNot(values) => (vec![7777], values.clone()),
                        Test::Lacks(bits) => {
                            (vec![0, !bits], vec![*bits, bits & bits.wrapping_neg()])
                        }
                    };
                    for value in good {
                        assert_eq!(on(*argument, value), (ALLOWED, true));
                    }
                    for value in bad {
                        assert_eq!(on(*argument, value), (failed(EPERM), true));
                    }
                }
            }
        }
    }
}

#[test]
fn calls_of_another_architecture_are_not_there() {
    let filter = Filter::for_sandboxes().unwrap();
    let i386 = 0x4000_0003;
    for number in 0..512 {
        assert_eq!(run(&filter, i386, number, [0; 6]), (failed(ENOSYS), false));
    }
}

#[test]
fn only_the_isolator_makes_namespaces_and_mounts() {
    let (sandbox, isolator) = (Filter::for_sandboxes().unwrap(), Filter::for_isolators().unwrap());
    let newuser = libc::CLONE_NEWUSER.unsigned_abs();
    for (name, error) in [("mount", EPERM), ("unshare", EPERM), ("clone3", ENOSYS)] {
        let number = calls::number(name).unwrap();
        let verdict = |filter| run(filter, ARCHITECTURE, number, [newuser; 6]).0;
        assert_eq!((verdict(&sandbox), verdict(&isolator)), (failed(error), ALLOWED), "{name}");
    }
}

#[test]
fn beside_host_files_no_call_makes_a_set_id_file() {
    let filter = Filter::for_sandboxes_on_host_files().unwrap();
    let (create, unnamed) = (libc::O_CREAT.unsigned_abs(), libc::O_TMPFILE.unsigned_abs());
    let (plain, set_id) = (0o644, [0o4755, 0o2755, 0o6000]);
    let check = |name: &str, arguments: [u32; 6], wanted: u32| {
        let found = run(&filter, ARCHITECTURE, calls::number(name).unwrap(), arguments).0;
        assert_eq!(found, wanted, "{name} {arguments:?}");
    };
    for mode in set_id {
        check("fchmod", [3, mode, 0, 0, 0, 0], failed(EPERM));
        check("fchmodat", [3, 0, mode, 0, 0, 0], failed(EPERM));
        check("fchmodat2", [3, 0, mode, 0, 0, 0], failed(EPERM));
        check("mknodat", [3, 0, mode, 0, 0, 0], failed(EPERM));
        for flags in [create, unnamed, create | libc::O_WRONLY.unsigned_abs()] {
            check("openat", [3, 0, flags, mode, 0, 0], failed(EPERM));
            check("openat", [3, 0, flags, plain, 0, 0], ALLOWED);
        }
        // Without these flags the register may hold anything.
        check("openat", [3, 0, 0, mode, 0, 0], ALLOWED);
    }
    for name in ["openat2", "setxattr", "lsetxattr", "fsetxattr"] {
        check(name, [0; 6], failed(ENOSYS));
    }
    check("fchmod", [3, plain, 0, 0, 0, 0], ALLOWED);
}
