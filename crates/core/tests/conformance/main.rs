//! The conformance suite, tried on the fake runtime and on fakes that are broken on purpose.

mod broken;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{
    ImageName, Outlets, Runtime, SandboxSpec, Token,
    testkit::{
        FakeRuntime,
        conformance::{Harness, Law, Reply, Transport},
    },
};

use self::broken::{Broken, Fault};

struct Fake(FakeRuntime);

#[async_trait]
impl Harness for Fake {
    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.0.clone())
    }

    async fn reopen(&self) -> Arc<dyn Runtime> {
        self.runtime()
    }

    fn spec(&self) -> SandboxSpec {
        spec()
    }

    async fn write(&self, spec: &SandboxSpec, path: &str, text: &str) {
        self.0.write_file(spec.id, path, text);
    }

    async fn read(&self, spec: &SandboxSpec, path: &str) -> Option<String> {
        self.0.read_file(spec.id, path)
    }

    async fn talk(&self, spec: &SandboxSpec, how: Transport, to: SocketAddr, line: &str) -> Reply {
        talk(&self.0, spec, how, to, line).await
    }

    fn hear(
        &self,
        outlets: &Outlets,
        how: Transport,
        answer: &str,
    ) -> Option<(SocketAddr, String)> {
        FakeRuntime::take_in(outlets, how, answer)
    }

    async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Sends a line out of a sandbox and waits a moment for another one.
async fn talk(
    fake: &FakeRuntime,
    spec: &SandboxSpec,
    how: Transport,
    to: SocketAddr,
    line: &str,
) -> Reply {
    let Ok(mut sent) = fake.send_out(spec.id, how, to, line) else { return Reply::Refused };
    for _ in 0..40 {
        if let Some(line) = sent.answer() {
            return Reply::Line(line);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Reply::Silence
}

async fn fake() -> Option<Fake> {
    Some(Fake(FakeRuntime::new()))
}

osb_core::testkit::conformance!(fake);

#[tokio::test]
async fn a_runtime_without_powers_keeps_the_laws() {
    for law in Law::ALL {
        let powerless = FakeRuntime::new().without_pause().without_snapshots().without_network();
        if let Err(breach) = law.check(&Fake(powerless)).await {
            panic!("{law:?}: {breach}");
        }
    }
}

struct BrokenHarness(Broken);

#[async_trait]
impl Harness for BrokenHarness {
    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.0.clone())
    }

    async fn reopen(&self) -> Arc<dyn Runtime> {
        Arc::new(self.0.reopen())
    }

    fn spec(&self) -> SandboxSpec {
        spec()
    }

    async fn write(&self, spec: &SandboxSpec, path: &str, text: &str) {
        self.0.write_file(spec.id, path, text).await;
    }

    async fn read(&self, spec: &SandboxSpec, path: &str) -> Option<String> {
        self.0.read_file(spec.id, path)
    }

    async fn talk(&self, spec: &SandboxSpec, how: Transport, to: SocketAddr, line: &str) -> Reply {
        talk(self.0.fake(), spec, how, self.0.sent_to(to), line).await
    }

    fn hear(
        &self,
        outlets: &Outlets,
        how: Transport,
        answer: &str,
    ) -> Option<(SocketAddr, String)> {
        FakeRuntime::take_in(outlets, how, answer)
    }

    async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// Each fault, and the law that must notice it.
const CAUGHT: &[(Fault, &str)] = &[
    (Fault::EnsuresNothing, "an_ensured_sandbox_is_listed_as_running"),
    (Fault::NeverStarts, "an_ensured_sandbox_is_listed_as_running"),
    (Fault::ListsTwice, "ensuring_twice_makes_one_sandbox"),
    (Fault::RefusesSecondEnsure, "ensuring_twice_makes_one_sandbox"),
    (Fault::IgnoresConflicts, "another_spec_conflicts_and_the_first_stays"),
    (Fault::ReplacesOnConflict, "another_spec_conflicts_and_the_first_stays"),
    (Fault::TakesAnyImage, "an_unknown_image_is_refused_and_leaves_nothing"),
    (Fault::LeavesRefusedImage, "an_unknown_image_is_refused_and_leaves_nothing"),
    (Fault::RefusesSecondRemove, "removing_nothing_succeeds"),
    (Fault::RefusesSecondRemove, "removing_one_sandbox_twice_at_once_succeeds"),
    (Fault::ForgetsToRemove, "a_removed_sandbox_is_gone"),
    (Fault::ForgetsToRemove, "a_removed_id_is_free_again"),
    (Fault::ForgetsToRemove, "removal_breaks_open_streams"),
    (Fault::ForgetsToRemove, "a_removed_sandbox_cannot_be_dialled"),
    (Fault::ForgetsToRemove, "a_dropped_ensure_can_be_cleaned_up"),
    (Fault::DialsNobody, "dialling_reaches_execd"),
    (Fault::DialsAnyPort, "a_dead_port_is_refused_at_once"),
    (Fault::RefusesTheAbsent, "a_sandbox_that_is_not_there_cannot_be_dialled"),
    (Fault::ToldNothing, "a_finished_entrypoint_is_watched"),
    (Fault::TellsZero, "a_failed_entrypoint_tells_its_code"),
    (Fault::DropsTheEnded, "an_ended_sandbox_is_listed_until_it_is_removed"),
    (Fault::LiesAboutPaused, "a_paused_sandbox_is_listed_as_paused_and_resumes"),
    (Fault::RefusesSecondPause, "pausing_and_resuming_twice_is_doing_it_once"),
    (Fault::PausesTheAbsent, "a_sandbox_that_is_not_there_cannot_be_paused"),
    (Fault::KeepsThePaused, "a_paused_sandbox_can_be_removed"),
    (Fault::RestoresNothing, "files_come_back_as_they_were_when_they_were_kept"),
    (Fault::MisjudgesSizes, "what_is_kept_is_listed_with_its_size"),
    (Fault::PausesTheSource, "the_source_of_a_snapshot_goes_on"),
    (Fault::ResumesTheSource, "a_paused_sandbox_is_kept_and_stays_paused"),
    (Fault::WritesEverywhere, "two_that_start_from_one_snapshot_do_not_see_each_other"),
    (Fault::DropsSnapshotsOfTheRemoved, "a_snapshot_outlives_its_sandbox"),
    (Fault::RestoresNothing, "a_snapshot_of_a_restored_sandbox_has_what_it_stands_on"),
    (Fault::DeletesNoSnapshot, "a_deleted_snapshot_is_gone_and_what_stands_on_it_goes_on"),
    (Fault::RefusesSecondDelete, "deleting_no_snapshot_succeeds"),
    (Fault::TakesAgain, "taking_one_snapshot_twice_keeps_the_first"),
    (Fault::RestoresTheAbsent, "what_is_not_there_is_neither_kept_nor_restored"),
    (Fault::ListsFromMemory, "another_runtime_over_the_world_has_the_same_snapshots"),
    (Fault::ForgetsVolumes, "a_volume_is_made_for_a_sandbox_and_outlives_it"),
    (Fault::MakesAnyVolume, "a_missing_volume_is_refused_and_leaves_nothing"),
    (Fault::KeepsEveryVolume, "an_ephemeral_volume_goes_with_the_last_that_uses_it"),
    (Fault::RemovesUsedVolumes, "a_volume_in_use_cannot_be_removed"),
    (Fault::RemovesAbsentVolumes, "a_volume_is_made_for_a_sandbox_and_outlives_it"),
    (Fault::MeasuresAbsentVolumes, "a_volume_is_made_for_a_sandbox_and_outlives_it"),
    (Fault::RemovesAll, "removing_one_sandbox_leaves_the_other_alone"),
    (Fault::PausesAll, "pausing_one_sandbox_leaves_the_other_alone"),
    (Fault::OneAtATime, "many_sandboxes_start_at_once"),
    (Fault::ListsFromMemory, "another_runtime_over_the_world_lists_the_same"),
    (Fault::ActsFromMemory, "another_runtime_over_the_world_has_the_same_powers"),
    (Fault::PrintsNothing, "what_an_entrypoint_printed_outlives_it"),
    (Fault::ForgetsWhatThePausedPrinted, "what_a_paused_sandbox_printed_is_shown"),
    (Fault::TellsWhatTheAbsentPrinted, "a_sandbox_that_is_not_there_printed_nothing"),
    (Fault::UsesNothing, "what_is_up_tells_what_it_uses"),
    (Fault::TellsWhatTheAbsentUse, "a_sandbox_that_is_not_there_uses_nothing"),
    (Fault::TakesLackForASignal, "an_entrypoint_that_takes_all_memory_ends_for_lack_of_it"),
    (Fault::OpensForNobody, "a_stream_to_anywhere_arrives_with_its_destination"),
    (Fault::OpensForNobody, "a_datagram_to_anywhere_arrives_and_is_answered_from_there"),
    (Fault::LosesWhatWasSent, "what_is_sent_before_anybody_asks_is_not_lost"),
    (Fault::LetsItsOwnOut, "what_a_sandbox_sends_itself_stays_there"),
    (Fault::KeepsOutlets, "with_its_outlets_closed_a_sandbox_is_refused"),
    (Fault::OpensOnce, "whoever_asks_again_gets_new_outlets"),
    (Fault::OpensForTheAbsent, "a_sandbox_that_is_not_there_has_no_outlets"),
    (Fault::CountsNoLack, "what_ends_for_lack_of_memory_is_counted_and_the_sandbox_goes_on"),
];

#[tokio::test]
async fn every_fault_is_noticed_by_the_law_aimed_at_it() {
    for (fault, name) in CAUGHT {
        let law = Law::ALL.iter().find(|law| law.name == *name).unwrap();
        let harness = BrokenHarness(Broken::new(*fault));
        assert!(law.check(&harness).await.is_err(), "{name} does not notice {fault:?}");
    }
}

#[test]
fn every_law_can_be_broken() {
    let unbroken: Vec<_> =
        Law::ALL.iter().filter(|law| !CAUGHT.iter().any(|(_, name)| *name == law.name)).collect();
    assert!(unbroken.is_empty(), "no fault breaks {unbroken:?}");
}

/// The wrapper itself must not be what the laws notice.
#[tokio::test]
async fn a_broken_fake_without_a_fault_keeps_the_laws() {
    for law in Law::ALL {
        let harness = BrokenHarness(Broken::new(Fault::None));
        if let Err(breach) = law.check(&harness).await {
            panic!("{law:?}: {breach}");
        }
    }
}

fn spec() -> SandboxSpec {
    SandboxSpec::new(
        SandboxId::random(),
        ImageName::new("host"),
        vec!["sleep".to_owned(), "infinity".to_owned()],
        Token::new("token"),
    )
}
