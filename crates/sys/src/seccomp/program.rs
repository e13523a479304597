//! From rules to the small program that the kernel runs at each system call.
//!
//! It finds the call by halving, in some seven steps. For calls that are allowed whatever their
//! arguments, the kernel finds out once, when the program is installed, and does not run it again.

use libc::{BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
use std::io;

use super::rules::{ENOSYS, EPERM, Rules, Test, Verdict};

/// One instruction.
pub(super) type Instruction = libc::sock_filter;

/// How the kernel names the architecture that a call was made for.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;

/// Where the program finds what it looks at, in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// The calls from `first` on, up to where the next stretch begins.
#[derive(Debug)]
struct Stretch<'a> {
    first: u32,
    verdict: &'a Verdict,
}

/// What is not named, and the numbers of other interfaces, such as x32, above all of them.
const ABSENT: Verdict = Verdict::Fail(ENOSYS);

pub(super) fn compile(rules: &Rules) -> io::Result<Vec<Instruction>> {
    let mut code = Code::default();
    code.load(ARCHITECTURE_AT);
    // A program for another architecture calls by other numbers. Here it is as if the kernel had
    // no support for it.
    code.jump(BPF_JEQ, ARCHITECTURE, 1, 0)?;
    code.end(&ABSENT);
    code.load(NUMBER_AT);
    code.search(&stretches(rules))?;
    code.conditions()?;
    Ok(code.instructions)
}

fn stretches(rules: &Rules) -> Vec<Stretch<'_>> {
    let mut found = vec![Stretch { first: 0, verdict: &ABSENT }];
    let mut next = 0;
    for (number, verdict) in &rules.0 {
        if *number > next {
            found.push(Stretch { first: next, verdict: &ABSENT });
        }
        found.push(Stretch { first: *number, verdict });
        next = number + 1;
    }
    found.push(Stretch { first: next, verdict: &ABSENT });
    // Neighbours with one verdict are one stretch, and of two that begin together the first is empty.
    let mut merged: Vec<Stretch<'_>> = Vec::new();
    for stretch in found {
        while merged.last().is_some_and(|last| last.first == stretch.first) {
            merged.pop();
        }
        if merged.last().is_none_or(|last| last.verdict != stretch.verdict) {
            merged.push(stretch);
        }
    }
    merged
}

#[derive(Default)]
struct Code<'a> {
    instructions: Vec<Instruction>,
    /// The jumps that wait for the code of a condition.
    open: Vec<(usize, &'a Verdict)>,
}

impl<'a> Code<'a> {
    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        let code = u16::try_from(code).unwrap_or_default();
        self.instructions.push(Instruction { code, jt, jf, k });
    }

    fn load(&mut self, at: u32) {
        self.push(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    }

    /// Skips `yes` instructions if the comparison holds and `no` if it does not.
    fn jump(&mut self, comparison: u32, with: u32, yes: usize, no: usize) -> io::Result<()> {
        let far = |_| io::Error::other("the filter of system calls has a jump that is too far");
        let (yes, no) = (u8::try_from(yes).map_err(far)?, u8::try_from(no).map_err(far)?);
        self.push(BPF_JMP | comparison | BPF_K, with, yes, no);
        Ok(())
    }

    /// Ends with a verdict that needs no look at the arguments.
    fn end(&mut self, verdict: &Verdict) {
        let action = match verdict {
            Verdict::Allow => libc::SECCOMP_RET_ALLOW,
            Verdict::Fail(error) => libc::SECCOMP_RET_ERRNO | u32::from(*error),
            Verdict::If(..) | Verdict::IfOneLacks(_) => libc::SECCOMP_RET_ERRNO | u32::from(EPERM),
        };
        self.push(BPF_RET | BPF_K, action, 0, 0);
    }

    /// Finds the stretch in which the loaded number is.
    fn search(&mut self, stretches: &[Stretch<'a>]) -> io::Result<()> {
        match stretches {
            [] => {}
            [Stretch { verdict: verdict @ (Verdict::If(..) | Verdict::IfOneLacks(_)), .. }] => {
                self.open.push((self.instructions.len(), verdict));
                self.push(BPF_JMP | BPF_JA, 0, 0, 0);
            }
            [Stretch { verdict, .. }] => self.end(verdict),
            more => {
                let (low, high) = more.split_at(more.len() / 2);
                let middle = high.first().map_or(u32::MAX, |stretch| stretch.first);
                // Both halves of n stretches have n ends and n - 1 comparisons.
                self.jump(BPF_JGE, middle, low.len() * 2 - 1, 0)?;
                self.search(low)?;
                self.search(high)?;
            }
        }
        Ok(())
    }

    /// The code of all conditions that jumps wait for.
    fn conditions(&mut self) -> io::Result<()> {
        for (from, verdict) in std::mem::take(&mut self.open) {
            let distance = u32::try_from(self.instructions.len() - from - 1);
            let distance = distance.map_err(io::Error::other)?;
            if let Some(jump) = self.instructions.get_mut(from) {
                jump.k = distance;
            }
            match verdict {
                Verdict::If(argument, test) => self.test(*argument, test)?,
                Verdict::IfOneLacks(arguments) => {
                    for (argument, bits) in arguments {
                        self.load(ARGUMENTS_AT + 8 * u32::from(*argument));
                        self.jump(BPF_JSET, *bits, 1, 0)?;
                        self.end(&Verdict::Allow);
                    }
                    self.end(&Verdict::Fail(EPERM));
                }
                Verdict::Allow | Verdict::Fail(_) => self.end(verdict),
            }
        }
        Ok(())
    }

    /// Allows the call if the test of the argument holds.
    fn test(&mut self, argument: u8, test: &Test) -> io::Result<()> {
        self.load(ARGUMENTS_AT + 8 * u32::from(argument));
        let (comparison, values, found) = match test {
            Test::Is(values) => (BPF_JEQ, values.as_slice(), true),
            Test::IsNot(values) => (BPF_JEQ, values.as_slice(), false),
            Test::Lacks(bits) => (BPF_JSET, std::slice::from_ref(bits), false),
        };
        for (index, value) in values.iter().enumerate() {
            self.jump(comparison, *value, values.len() - index, 0)?;
        }
        let (allow, refuse) = (Verdict::Allow, Verdict::Fail(EPERM));
        self.end(if found { &refuse } else { &allow });
        self.end(if found { &allow } else { &refuse });
        Ok(())
    }
}
