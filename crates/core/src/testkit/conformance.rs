//! The laws that every runtime keeps.
//!
//! A runtime's crate gives a [`Harness`] and expands [`conformance!`](crate::conformance) in one of
//! its integration tests; each law becomes a test of its own.

mod breach;
mod crowd;
mod existence;
mod life;
mod network;
mod pause;
mod printed;
mod reach;
mod snapshots;
mod trial;
mod usage;
mod volumes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_core::future::BoxFuture;

pub use self::breach::Breach;
use self::trial::Trial;
use crate::{Outlets, Runtime, SandboxSpec};

/// A runtime to be tried, and what the laws need to know of it. Each law gets a new one.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The runtime, or the last that was reopened. Its world is empty at first and belongs to this
    /// harness alone.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// Another runtime over the same world, as a restarted server would make it. It begins with
    /// no memory of the first, which is not used any more.
    async fn reopen(&self) -> Arc<dyn Runtime>;

    /// A spec with an id of its own, whose entrypoint runs until the sandbox is ended.
    fn spec(&self) -> SandboxSpec;

    /// An entrypoint that does nothing but end with this code.
    fn exiting(&self, code: i32) -> Vec<String> {
        ["sh", "-c", &format!("exit {code}")].map(str::to_owned).to_vec()
    }

    /// An entrypoint that takes more memory than there is, and one that goes on when the kernel has
    /// ended what did.
    fn greedy(&self) -> [Vec<String>; 2] {
        let once = ["tail", "/dev/zero"].map(str::to_owned).to_vec();
        let survivor = ["sh", "-c", "tail /dev/zero; exec tail -f /dev/null"];
        [once, survivor.map(str::to_owned).to_vec()]
    }

    /// Writes a file in a running sandbox.
    async fn write(&self, spec: &SandboxSpec, path: &str, text: &str);

    /// What is in a file of a running sandbox, if it is there.
    async fn read(&self, spec: &SandboxSpec, path: &str) -> Option<String>;

    /// Has a program of a running sandbox send a line to an address, and tells what comes of it.
    async fn talk(&self, spec: &SandboxSpec, how: Transport, to: SocketAddr, line: &str) -> Reply;

    /// Takes a line that has come to the outlets of a sandbox, if there is one, and answers it.
    /// Tells where it was to go, and what it says.
    fn hear(&self, outlets: &Outlets, how: Transport, answer: &str)
    -> Option<(SocketAddr, String)>;

    /// Lets this much time pass, and other tasks run.
    async fn wait(&self, time: Duration);

    /// How long something may take that should happen.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// How something is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Stream,
    Datagram,
}

/// What a program hears that has sent something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Line(String),
    /// It was told that nobody is there.
    Refused,
    Silence,
}

/// One sentence that is true of every runtime.
#[derive(Clone, Copy)]
pub struct Law {
    pub name: &'static str,
    check: for<'a> fn(&'a Trial<'a>) -> BoxFuture<'a, Result<(), Breach>>,
}

impl Law {
    /// Every law.
    pub const ALL: &[Self] = crate::__each_law!({ crate::__law_table }());

    /// Tries the law, and leaves an empty world.
    pub async fn check(&self, harness: &dyn Harness) -> Result<(), Breach> {
        let trial = Trial::new(harness);
        let outcome = (self.check)(&trial).await;
        trial.clean().await;
        outcome
    }
}

impl std::fmt::Debug for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Tries the law of this name and panics if it is broken. Without a harness, as on a machine that
/// cannot run the runtime, there is nothing to try.
pub async fn uphold(harness: Option<impl Harness>, name: &str) {
    let Some(harness) = harness else { return };
    let law = Law::ALL.iter().find(|law| law.name == name);
    let outcome = match law {
        Some(law) => law.check(&harness).await,
        None => Err(Breach::new(format!("there is no law {name}"))),
    };
    if let Err(breach) = outcome {
        panic!("{} breaks the law {name}: {breach}", harness.runtime().name());
    }
}

/// Makes one `#[tokio::test]` of each law. The argument is an `async fn() -> Option<impl Harness>`;
/// it may answer `None`, once it has said why, where the runtime cannot run.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        $crate::__each_law! { { $crate::__law_tests } ($make) }
    };
}

/// The one list of laws, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __each_law {
    ({ $($then:tt)* } $args:tt) => {
        $($then)*! {
            $args
            existence::an_ensured_sandbox_is_listed_as_running
            existence::ensuring_twice_makes_one_sandbox
            existence::another_spec_conflicts_and_the_first_stays
            existence::an_unknown_image_is_refused_and_leaves_nothing
            existence::removing_nothing_succeeds
            existence::a_removed_sandbox_is_gone
            existence::a_removed_id_is_free_again
            reach::dialling_reaches_execd
            reach::a_dead_port_is_refused_at_once
            reach::a_sandbox_that_is_not_there_cannot_be_dialled
            reach::a_removed_sandbox_cannot_be_dialled
            reach::removal_breaks_open_streams
            life::a_finished_entrypoint_is_watched
            life::a_failed_entrypoint_tells_its_code
            life::an_ended_sandbox_is_listed_until_it_is_removed
            pause::a_paused_sandbox_is_listed_as_paused_and_resumes
            pause::pausing_and_resuming_twice_is_doing_it_once
            pause::a_sandbox_that_is_not_there_cannot_be_paused
            pause::a_paused_sandbox_can_be_removed
            printed::what_an_entrypoint_printed_outlives_it
            printed::what_a_paused_sandbox_printed_is_shown
            printed::a_sandbox_that_is_not_there_printed_nothing
            usage::what_is_up_tells_what_it_uses
            usage::a_sandbox_that_is_not_there_uses_nothing
            usage::an_entrypoint_that_takes_all_memory_ends_for_lack_of_it
            usage::what_ends_for_lack_of_memory_is_counted_and_the_sandbox_goes_on
            snapshots::files_come_back_as_they_were_when_they_were_kept
            snapshots::what_is_kept_is_listed_with_its_size
            snapshots::the_source_of_a_snapshot_goes_on
            snapshots::a_paused_sandbox_is_kept_and_stays_paused
            snapshots::two_that_start_from_one_snapshot_do_not_see_each_other
            snapshots::a_snapshot_outlives_its_sandbox
            snapshots::a_snapshot_of_a_restored_sandbox_has_what_it_stands_on
            snapshots::a_deleted_snapshot_is_gone_and_what_stands_on_it_goes_on
            snapshots::deleting_no_snapshot_succeeds
            snapshots::taking_one_snapshot_twice_keeps_the_first
            snapshots::what_is_not_there_is_neither_kept_nor_restored
            snapshots::another_runtime_over_the_world_has_the_same_snapshots
            volumes::a_volume_is_made_for_a_sandbox_and_outlives_it
            volumes::a_missing_volume_is_refused_and_leaves_nothing
            volumes::an_ephemeral_volume_goes_with_the_last_that_uses_it
            volumes::a_volume_in_use_cannot_be_removed
            network::a_stream_to_anywhere_arrives_with_its_destination
            network::a_datagram_to_anywhere_arrives_and_is_answered_from_there
            network::what_is_sent_before_anybody_asks_is_not_lost
            network::what_a_sandbox_sends_itself_stays_there
            network::with_its_outlets_closed_a_sandbox_is_refused
            network::whoever_asks_again_gets_new_outlets
            network::a_sandbox_that_is_not_there_has_no_outlets
            crowd::removing_one_sandbox_leaves_the_other_alone
            crowd::pausing_one_sandbox_leaves_the_other_alone
            crowd::many_sandboxes_start_at_once
            crowd::removing_one_sandbox_twice_at_once_succeeds
            crowd::a_dropped_ensure_can_be_cleaned_up
            crowd::another_runtime_over_the_world_lists_the_same
            crowd::another_runtime_over_the_world_has_the_same_powers
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law_table {
    (() $($subject:ident::$law:ident)*) => {
        &[$(Law { name: stringify!($law), check: |trial| Box::pin($subject::$law(trial)) }),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law_tests {
    (($make:path) $($subject:ident::$law:ident)*) => {
        $(
            #[tokio::test]
            async fn $law() {
                $crate::testkit::conformance::uphold($make().await, stringify!($law)).await;
            }
        )*
    };
}
