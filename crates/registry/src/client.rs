use std::sync::Arc;

use crate::{
    Guard, Login, Reference, RegistryError, Repository, Settings, keyring::Keyring, passes::Passes,
    transfers::Transfers, wire::Wire,
};

/// Talks with registries. Copies share connections, tokens and the bound on what is on its way.
#[derive(Debug, Clone)]
pub struct Client(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) wire: Wire,
    pub(crate) passes: Passes,
    pub(crate) keyring: Keyring,
    pub(crate) transfers: Transfers,
}

impl Client {
    /// Fails if the settings cannot be used.
    pub fn new(settings: Settings, guard: Guard) -> Result<Self, RegistryError> {
        let wire = Wire::new(&settings, guard)?;
        let keyring = Keyring::new(settings.logins.clone());
        let transfers = Transfers::new(&settings);
        let passes = Passes::new()?;
        Ok(Self(Arc::new(Shared { settings, wire, passes, keyring, transfers })))
    }

    /// The place where an image is, or is to be. The login is for the registry of that name and
    /// goes nowhere else; without one, the operator's is looked for.
    pub fn repository(&self, reference: &Reference, login: Option<Login>) -> Repository {
        Repository::new(self.clone(), reference.clone(), login)
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }
}
