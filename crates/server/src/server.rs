use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    time::Duration,
};

use axum::Router;
use osb_core::{Clock, Runtime};
use osb_egress::{Egress, Settings, Witness};
use osb_gateway::Gateway;
use osb_image::Remote;
use osb_sys::fs::{self, PathError};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

use crate::{
    admission::Limits,
    app::{App, Current, Parts},
    audit::Auditor,
    builds::Builds,
    config::Config,
    connections,
    ingress::Signer,
    key::{self, ApiKeySource},
    library::Library,
    reconcile::{Outbound, Reconciler, StartupError},
    reload::Reload,
    routes,
    store::{Store, StoreError},
    templates::{self, Templates},
    tls::Tls,
    vaults::{self, VaultsError},
};

/// In the data directory: what should be.
pub(crate) const DATABASE: &str = "opensandbox.db";

/// The control plane, bound to its address and in charge of its sandboxes.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    key_source: ApiKeySource,
    tls: Option<Tls>,
    drain: Duration,
    data_dir: PathBuf,
    app: App,
    routes: Router,
    /// A server that is dropped without having run drives nothing any more.
    _driving: DropGuard,
    /// Held for as long as the server lives: two servers would end each other's sandboxes.
    _lock: File,
}

/// What the server is in charge of, and what it goes by.
#[derive(Clone)]
pub struct World {
    pub runtime: Arc<dyn Runtime>,
    /// The images that its sandboxes are made of, if the runtime leaves them to the server.
    pub images: Option<Remote>,
    pub clock: Arc<dyn Clock>,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Data(#[from] PathError),
    #[error("another server uses the data directory {0}")]
    InUse(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot take over the sandboxes of this host")]
    Sandboxes(#[source] StartupError),
    #[error(transparent)]
    Vaults(#[from] VaultsError),
    #[error("cannot answer for what sandboxes send")]
    Egress(#[source] io::Error),
}

impl Server {
    /// Takes the address. To be done before anything is made on this machine: what cannot listen
    /// should leave nothing.
    pub async fn listen(config: &Config) -> Result<TcpListener, StartError> {
        let unbound = |source| StartError::Listen { address: config.listen, source };
        TcpListener::bind(config.listen).await.map_err(unbound)
    }

    /// Loads what an earlier server left, and takes charge of it.
    pub async fn start(
        listener: TcpListener,
        config: Config,
        World { runtime, images, clock }: World,
    ) -> Result<Self, StartError> {
        let unbound = |source| StartError::Listen { address: config.listen, source };
        let address = listener.local_addr().map_err(unbound)?;

        // One that is there keeps its mode: its owner chose it.
        fs::create_private_dir_all(&config.data_dir)?;
        let lock = lock(&config.data_dir)?;
        let (key, key_source) = key::resolve(&config.key, &config.data_dir)?;
        let signer = Signer::open(&config.data_dir)?;
        let store = Arc::new(Store::open(&config.data_dir.join(DATABASE))?);
        let gateway = Gateway::new(Arc::clone(&runtime));
        let root = Some(vaults::root(&config.data_dir)?);
        let audit = Arc::new(Auditor::start(&config.data_dir, config.audit)?);
        let witness: Arc<dyn Witness> = audit.clone();
        let settings = Settings { root, witness: Some(witness), ..config.egress_settings };
        let egress = Egress::start(settings).map_err(StartError::Egress)?;
        let (transport, scope) = (config.vault.transport.clone(), config.vault.scope);
        let sandboxes = store.index().newest_first(|_| true).into_iter().map(|record| record.id());
        let vaults =
            vaults::open(config.vault, config.vault_key.as_ref(), &config.data_dir, sandboxes)?;
        let outbound = Outbound::new(egress, config.egress, vaults, Arc::clone(&audit));
        let builds = match &images {
            Some(_) if runtime.builds().is_some() => Some(Builds::open(&config.data_dir)?),
            _ => None,
        };
        let steps = builds.as_ref().map(|builds| builds.steps.clone());
        let library = images.clone().map(|remote| Arc::new(Library::new(remote, steps)));
        let (theirs, time) = (Arc::clone(&store), Arc::clone(&clock));
        let execd = gateway.clone();
        let reconciler = Reconciler::start(runtime, theirs, time, outbound, library, execd)
            .await
            .map_err(StartError::Sandboxes)?;
        let driving = reconciler.stop_on_drop();
        let app = Arc::new(Parts {
            store,
            audit,
            reconciler,
            gateway,
            images,
            builds,
            templates: Templates::default(),
            clock,
            current: RwLock::new(Arc::new(Current {
                key,
                limits: Limits { max_timeout_seconds: config.max_sandbox_timeout_seconds },
            })),
            transport,
            scope,
            max_body_bytes: config.max_body_bytes,
            renew_interval: config.renew_interval,
            patience: config.patience,
            public_host: config.public_host,
            gateway_domain: config.gateway_domain,
            signer,
            local_host: address.to_string(),
        });
        templates::recover(&app);
        let routes = routes::router(&app);
        Ok(Self {
            listener,
            address,
            key_source,
            tls: config.tls.map(Tls::new),
            drain: config.drain,
            data_dir: config.data_dir,
            app,
            routes,
            _driving: driving,
            _lock: lock,
        })
    }

    /// Where the server listens; with port 0 in the configuration, the port it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the API key came from.
    pub fn api_key_source(&self) -> &ApiKeySource {
        &self.key_source
    }

    /// What changes settings while the server runs.
    pub fn reload(&self) -> Reload {
        Reload::new(Arc::clone(&self.app), self.tls.clone(), self.data_dir.clone())
    }

    /// Serves until `shutdown` ends; then lets requests finish for a moment and stops. The
    /// sandboxes live on.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        connections::serve(self.listener, self.tls, self.routes, shutdown, self.drain).await;
        self.app.gateway.shutdown().await;
        self.app.reconciler.stop().await;
        let app = Arc::clone(&self.app);
        // Joins threads that finish what they write; nothing else runs any more.
        let close = move || {
            app.store.close();
            app.audit.close();
        };
        tokio::task::spawn_blocking(close).await.ok();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("runtime", &self.runtime.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

pub(crate) fn lock(data_dir: &Path) -> Result<File, StartError> {
    let path = data_dir.join("lock");
    let failed = |source| PathError::new("lock", &path, source);
    let file =
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse(data_dir.display().to_string())),
        Err(TryLockError::Error(source)) => Err(failed(source).into()),
    }
}
