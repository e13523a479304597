use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use osb_api::{SandboxId, SnapshotId};
use osb_core::{
    Dialled, Exit, ImageName, Kept, KeptVolume, Network, Observed, ObservedState, Outlets, Pause,
    Printed, Runtime, RuntimeError, SandboxSpec, Snapshots, Usage, Used, VolumeProblem,
    VolumeSource, Volumes, testkit::FakeRuntime,
};

/// A fake that keeps every law but one.
#[derive(Clone)]
pub(crate) struct Broken {
    inner: FakeRuntime,
    fault: Fault,
    /// What this runtime remembers having ensured and not removed.
    memory: Arc<Mutex<BTreeSet<SandboxId>>>,
    /// What it remembers having kept.
    kept: Arc<Mutex<BTreeSet<SnapshotId>>>,
    /// Outlets that it has given away.
    outlets: Arc<Mutex<Vec<Option<TcpListener>>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    EnsuresNothing,
    NeverStarts,
    ListsTwice,
    RefusesSecondEnsure,
    IgnoresConflicts,
    ReplacesOnConflict,
    TakesAnyImage,
    LeavesRefusedImage,
    RefusesSecondRemove,
    ForgetsToRemove,
    DialsNobody,
    DialsAnyPort,
    RefusesTheAbsent,
    ToldNothing,
    TellsZero,
    DropsTheEnded,
    LiesAboutPaused,
    RefusesSecondPause,
    PausesTheAbsent,
    KeepsThePaused,
    RestoresNothing,
    MisjudgesSizes,
    PausesTheSource,
    ResumesTheSource,
    WritesEverywhere,
    DropsSnapshotsOfTheRemoved,
    DeletesNoSnapshot,
    RefusesSecondDelete,
    TakesAgain,
    RestoresTheAbsent,
    ForgetsVolumes,
    MakesAnyVolume,
    KeepsEveryVolume,
    RemovesUsedVolumes,
    RemovesAbsentVolumes,
    MeasuresAbsentVolumes,
    RemovesAll,
    PausesAll,
    OneAtATime,
    ListsFromMemory,
    ActsFromMemory,
    PrintsNothing,
    ForgetsWhatThePausedPrinted,
    TellsWhatTheAbsentPrinted,
    UsesNothing,
    TellsWhatTheAbsentUse,
    TakesLackForASignal,
    CountsNoLack,
    OpensForNobody,
    LosesWhatWasSent,
    LetsItsOwnOut,
    KeepsOutlets,
    OpensOnce,
    OpensForTheAbsent,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        let inner = FakeRuntime::new();
        let (memory, kept, outlets) = Default::default();
        Self { inner, fault, memory, kept, outlets }
    }

    pub(crate) fn reopen(&self) -> Self {
        Self { memory: Arc::default(), kept: Arc::default(), ..self.clone() }
    }

    pub(crate) fn fake(&self) -> &FakeRuntime {
        &self.inner
    }

    /// Where something goes that a sandbox sends.
    pub(crate) fn sent_to(&self, to: SocketAddr) -> SocketAddr {
        let leaves = self.has(Fault::LetsItsOwnOut) && to.ip().is_loopback();
        if leaves { (Ipv4Addr::BROADCAST, to.port()).into() } else { to }
    }

    /// Whether these are the first that are given away.
    fn remember(&self, outlets: &Outlets) -> bool {
        let mut given = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.has(Fault::KeepsOutlets).then(|| outlets.streams.try_clone().ok());
        given.push(kept.flatten());
        given.len() == 1
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn exists(&self, id: SandboxId) -> bool {
        self.inner.observed(id).is_some()
    }

    fn memory(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn power(&self) -> &dyn Pause {
        Runtime::pause(&self.inner).expect("invariant: this fake can pause")
    }

    fn snapshot_power(&self) -> &dyn Snapshots {
        Runtime::snapshots(&self.inner).expect("invariant: this fake keeps files")
    }

    fn remembered(&self) -> MutexGuard<'_, BTreeSet<SnapshotId>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read_file(&self, id: SandboxId, path: &str) -> Option<String> {
        self.inner.read_file(id, path)
    }

    pub(crate) async fn write_file(&self, id: SandboxId, path: &str, text: &str) {
        if self.has(Fault::WritesEverywhere) {
            for other in self.all().await {
                self.inner.write_file(other, path, text);
            }
        }
        self.inner.write_file(id, path, text);
    }

    fn remembers(&self, id: SandboxId) -> bool {
        self.memory().contains(&id)
    }

    async fn all(&self) -> Vec<SandboxId> {
        let listed = Runtime::list(&self.inner).await.unwrap_or_default();
        listed.into_iter().map(|observed| observed.id).collect()
    }

    fn seen(&self, mut observed: Observed) -> Observed {
        let lie = match (&observed.state, self.fault) {
            (ObservedState::Running, Fault::NeverStarts) => Some(ObservedState::Starting),
            (ObservedState::Paused, Fault::LiesAboutPaused) => Some(ObservedState::Running),
            (ObservedState::Exited(_), Fault::TellsZero) => {
                Some(ObservedState::Exited(Exit::Code(0)))
            }
            (ObservedState::Exited(Exit::OutOfMemory), Fault::TakesLackForASignal) => {
                Some(ObservedState::Exited(Exit::Signal(9)))
            }
            _ => None,
        };
        if self.has(Fault::CountsNoLack) {
            observed.oom_kills = 0;
        }
        if let Some(lie) = lie {
            observed.state = lie;
        }
        observed
    }
}

#[async_trait]
impl Runtime for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Observed, RuntimeError> {
        if self.has(Fault::EnsuresNothing) {
            return Ok(Observed::new(spec.id, ObservedState::Running));
        }
        if self.has(Fault::OneAtATime) && !self.memory().is_empty() {
            return Err(RuntimeError::Busy("there is one already".to_owned()));
        }
        if self.has(Fault::RefusesSecondEnsure) && self.remembers(spec.id)
            || self.has(Fault::ActsFromMemory) && !self.remembers(spec.id) && self.exists(spec.id)
        {
            return Err(RuntimeError::Conflict(spec.id));
        }
        let mut spec = spec.clone();
        let other = self.inner.spec(spec.id).filter(|existing| *existing != spec);
        match other {
            Some(existing) if self.has(Fault::IgnoresConflicts) => spec = existing,
            Some(_) if self.has(Fault::ReplacesOnConflict) => {
                Runtime::remove(&self.inner, spec.id).await?;
                self.inner.ensure(&spec).await?;
                return Err(RuntimeError::Conflict(spec.id));
            }
            Some(_) | None => {}
        }
        if self.has(Fault::TakesAnyImage) {
            spec.image = ImageName::new("host");
        }
        let absent = spec.snapshot.is_some_and(|id| !self.inner.has_snapshot(id));
        if self.has(Fault::RestoresNothing) || self.has(Fault::RestoresTheAbsent) && absent {
            spec.snapshot = None;
        }
        for volume in &mut spec.volumes {
            if let VolumeSource::Named { create, ephemeral, .. } = &mut volume.source {
                *create |= self.has(Fault::MakesAnyVolume);
                *ephemeral &= !self.has(Fault::KeepsEveryVolume);
            }
        }
        let outcome = self.inner.ensure(&spec).await;
        if self.has(Fault::LeavesRefusedImage)
            && let Err(RuntimeError::UnknownImage(_)) = &outcome
        {
            spec.image = ImageName::new("host");
            self.inner.ensure(&spec).await?;
        }
        let observed = outcome?;
        self.memory().insert(spec.id);
        Ok(self.seen(observed))
    }

    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let paused = self.inner.observed(id) == Some(ObservedState::Paused);
        if self.has(Fault::ForgetsToRemove) || self.has(Fault::KeepsThePaused) && paused {
            return Ok(());
        }
        if self.has(Fault::RefusesSecondRemove) && !self.exists(id) {
            return Err(RuntimeError::NotFound(id));
        }
        if self.has(Fault::RemovesAll) {
            for other in self.all().await {
                Runtime::remove(&self.inner, other).await?;
            }
        }
        if self.has(Fault::DropsSnapshotsOfTheRemoved) {
            for kept in self.snapshot_power().kept().await? {
                self.snapshot_power().delete(kept.id).await?;
            }
        }
        self.memory().remove(&id);
        Runtime::remove(&self.inner, id).await
    }

    async fn list(&self) -> Result<Vec<Observed>, RuntimeError> {
        let mut listed: Vec<Observed> = Runtime::list(&self.inner)
            .await?
            .into_iter()
            .map(|observed| self.seen(observed))
            .collect();
        if self.has(Fault::ListsTwice) {
            listed.extend(listed.clone());
        }
        if self.has(Fault::ListsFromMemory) {
            listed.retain(|observed| self.remembers(observed.id));
        }
        if self.has(Fault::DropsTheEnded) {
            listed.retain(|observed| !matches!(observed.state, ObservedState::Exited(_)));
        }
        Ok(listed)
    }

    fn watch(&self) -> BoxStream<'static, Observed> {
        let this = self.clone();
        let quiet = self.has(Fault::ToldNothing);
        let told = self.inner.watch().filter(move |_| std::future::ready(!quiet));
        told.map(move |observed| this.seen(observed)).boxed()
    }

    async fn dial(&self, id: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        match self.inner.dial(id, port).await {
            Ok(_) if self.has(Fault::DialsNobody) => Ok(silence()),
            Err(RuntimeError::Refused { .. }) if self.has(Fault::DialsAnyPort) => Ok(silence()),
            Err(RuntimeError::NotFound(id)) if self.has(Fault::RefusesTheAbsent) => {
                Err(RuntimeError::Refused { id, port })
            }
            outcome => outcome,
        }
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn usage(&self) -> Option<&dyn Usage> {
        Some(self)
    }

    fn printed(&self) -> Option<&dyn Printed> {
        Some(self)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }
}

#[async_trait]
impl Network for Broken {
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError> {
        let power = Runtime::network(&self.inner).expect("invariant: this fake has a network");
        let outlets = match power.outlets(id).await {
            Err(RuntimeError::NotFound(_)) if self.has(Fault::OpensForTheAbsent) => {
                return nobodys();
            }
            outcome => outcome?,
        };
        let is_first = self.remember(&outlets);
        if self.has(Fault::OpensForNobody) {
            return nobodys();
        }
        if self.has(Fault::LosesWhatWasSent) {
            drop(outlets);
            return power.outlets(id).await;
        }
        if self.has(Fault::OpensOnce) && !is_first {
            return Err(RuntimeError::NotFound(id));
        }
        Ok(outlets)
    }
}

/// Outlets at which nothing arrives.
fn nobodys() -> Result<Outlets, RuntimeError> {
    let open = || {
        let streams = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        streams.set_nonblocking(true)?;
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        datagrams.set_nonblocking(true)?;
        let answers = (datagrams.try_clone()?.into(), datagrams.try_clone()?.into());
        Ok(Outlets { streams, datagrams, answers })
    };
    open().map_err(|error: std::io::Error| RuntimeError::failed("cannot open outlets", error))
}

#[async_trait]
impl Usage for Broken {
    async fn usage(&self, id: SandboxId) -> Result<Used, RuntimeError> {
        let power = Runtime::usage(&self.inner).expect("invariant: this fake tells what is used");
        let nothing =
            Used { cpu: Duration::ZERO, memory: 0, memory_peak: None, processes: 0, disk: None };
        match power.usage(id).await {
            Ok(_) if self.has(Fault::UsesNothing) => Ok(nothing),
            Err(RuntimeError::NotFound(_)) if self.has(Fault::TellsWhatTheAbsentUse) => Ok(nothing),
            outcome => outcome,
        }
    }
}

#[async_trait]
impl Printed for Broken {
    async fn printed(&self, id: SandboxId) -> Result<Vec<u8>, RuntimeError> {
        let power = Runtime::printed(&self.inner).expect("invariant: this fake shows it");
        let is_paused = self.inner.observed(id) == Some(ObservedState::Paused);
        match power.printed(id).await {
            Ok(_) if self.has(Fault::PrintsNothing) => Ok(Vec::new()),
            Ok(_) if self.has(Fault::ForgetsWhatThePausedPrinted) && is_paused => Ok(Vec::new()),
            Err(RuntimeError::NotFound(_)) if self.has(Fault::TellsWhatTheAbsentPrinted) => {
                Ok(Vec::new())
            }
            outcome => outcome,
        }
    }
}

#[async_trait]
impl Volumes for Broken {
    async fn list(&self) -> Result<Vec<KeptVolume>, RuntimeError> {
        let listed = Volumes::list(&self.inner).await?;
        Ok(if self.has(Fault::ForgetsVolumes) { Vec::new() } else { listed })
    }

    async fn sizes(&self, names: &[String]) -> Result<Vec<Option<u64>>, RuntimeError> {
        let mut sizes = self.inner.sizes(names).await?;
        if self.has(Fault::MeasuresAbsentVolumes) {
            sizes.fill(Some(1));
        }
        Ok(sizes)
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        match Volumes::remove(&self.inner, name).await {
            Err(RuntimeError::Volume { problem: VolumeProblem::InUse, .. })
                if self.has(Fault::RemovesUsedVolumes) =>
            {
                Ok(())
            }
            Err(RuntimeError::Volume { problem: VolumeProblem::NotFound, .. })
                if self.has(Fault::RemovesAbsentVolumes) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }
}

#[async_trait]
impl Pause for Broken {
    async fn pause(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let power = self.power();
        let paused = self.inner.observed(id) == Some(ObservedState::Paused);
        if self.has(Fault::RefusesSecondPause) && paused {
            return Err(RuntimeError::Invalid("it is paused already".to_owned()));
        }
        if self.has(Fault::PausesTheAbsent) && !self.exists(id) {
            return Ok(());
        }
        if self.has(Fault::PausesAll) {
            for other in self.all().await {
                power.pause(other).await?;
            }
        }
        power.pause(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<(), RuntimeError> {
        self.power().resume(id).await
    }
}

#[async_trait]
impl Snapshots for Broken {
    async fn take(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Kept, RuntimeError> {
        let power = self.snapshot_power();
        if self.has(Fault::TakesAgain) {
            power.delete(id).await?;
        }
        let kept = power.take(sandbox, id).await?;
        if self.has(Fault::PausesTheSource) {
            self.power().pause(sandbox).await?;
        }
        if self.has(Fault::ResumesTheSource) {
            self.power().resume(sandbox).await?;
        }
        self.remembered().insert(id);
        Ok(kept)
    }

    async fn delete(&self, id: SnapshotId) -> Result<(), RuntimeError> {
        if self.has(Fault::DeletesNoSnapshot) {
            return Ok(());
        }
        if self.has(Fault::RefusesSecondDelete) && !self.inner.has_snapshot(id) {
            return Err(RuntimeError::UnknownSnapshot(id));
        }
        self.snapshot_power().delete(id).await
    }

    async fn kept(&self) -> Result<Vec<Kept>, RuntimeError> {
        let mut listed = self.snapshot_power().kept().await?;
        if self.has(Fault::ListsFromMemory) {
            listed.retain(|kept| self.remembered().contains(&kept.id));
        }
        if self.has(Fault::MisjudgesSizes) {
            for kept in &mut listed {
                kept.bytes = 0;
            }
        }
        Ok(listed)
    }
}

/// A stream that nobody answers.
fn silence() -> Dialled {
    let (caller, other) = UnixStream::pair().expect("a stream");
    caller.set_nonblocking(true).expect("a stream that does not block");
    drop(other);
    Dialled::Unix(caller)
}
