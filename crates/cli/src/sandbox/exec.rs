//! `osb sandbox exec`.

use opensandbox::Execd;

use crate::{
    ending,
    env::Environment,
    failure::Failure,
    invocation::Invocation,
    output::Output,
    signals::{Interrupts, Signals},
    target::Target,
};

#[derive(Debug, clap::Args)]
#[command(after_help = ending::HELP)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    invocation: Invocation,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let execd = args.target.lifecycle(environment)?.execd(&args.id).await?;
    exec(&args.invocation, &execd, &mut Signals::listen()?, output).await
}

async fn exec(
    invocation: &Invocation,
    execd: &Execd,
    interrupts: &mut impl Interrupts,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let mut running = invocation.start(execd).await?;
    let signal = tokio::select! {
        ended = running.follow(output) => return ended,
        signal = interrupts.next() => signal,
    };
    if let Some(id) = running.id() {
        let stopped = tokio::select! {
            stopped = execd.interrupt(id) => match stopped {
                // Such an execd ends a command whose caller hangs up, as this now does.
                Err(error) if error.is_not_supported() => Ok(()),
                stopped => stopped.map_err(|error| error.to_string()),
            },
            _ = interrupts.next() => Err("interrupted".to_owned()),
        };
        if let Err(reason) = stopped {
            output.say(&format!("command {id} may still run ({reason})"));
        }
    }
    Ok(signal.exit_code())
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, io, rc::Rc};

    use clap::Parser as _;
    use opensandbox::{
        Lifecycle, Sandbox,
        testkit::{FakeBackend, Then},
    };

    use super::*;
    use crate::signals::scripted::{After, Never};

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    const INIT: &str = "{\"type\":\"init\",\"text\":\"9f\",\"timestamp\":1}\n\n";
    const OUT: &str = "{\"type\":\"stdout\",\"text\":\"out\",\"timestamp\":1}\n\n";
    const KILLED: &str = "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"-1\",\"traceback\":[\"signal: killed\"]},\"timestamp\":1}\n\n";

    /// What was written so far; clones show the same.
    #[derive(Clone, Default)]
    struct Written(Rc<RefCell<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn exec_line(
        backend: &FakeBackend,
        interrupts: &mut impl Interrupts,
        mut out: Written,
    ) -> Result<u8, Failure> {
        let lifecycle = Lifecycle::new(backend.connection());
        let sandbox = Sandbox::create(&lifecycle, &Sandbox::request("host")).await.unwrap();
        let args = Line::try_parse_from(["exec", sandbox.id(), "--", "x"]).unwrap().args;
        let mut err = Vec::new();
        let mut output = Output::new(&mut out, &mut err);
        exec(&args.invocation, sandbox.execd(), interrupts, &mut output).await
    }

    #[tokio::test]
    async fn an_interrupt_stops_the_command_and_keeps_the_sandbox() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[INIT, OUT], Then::Hang);
        let out = Written::default();
        let mut interrupts = After::condition(|| out.text() == "out\n");
        let code = exec_line(&backend, &mut interrupts, out.clone()).await;
        assert_eq!(code.unwrap(), 130);
        assert_eq!(backend.sandboxes().len(), 1);
        assert!(backend.calls().iter().any(|call| call.ends_with("/command?id=9f")));
    }

    #[tokio::test]
    async fn a_signal_counts_from_128() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[INIT, KILLED], Then::End);
        assert_eq!(exec_line(&backend, &mut Never, Written::default()).await.unwrap(), 137);
    }
}
