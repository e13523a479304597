use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success.
///
/// Both fields are always present: published clients look both up without asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// A constant from [`codes`], for programs.
    #[cfg_attr(feature = "schema", schema(examples("SANDBOX::INVALID_PARAMETER")))]
    pub code: String,
    /// What went wrong and what to do, for people.
    pub message: String,
}

/// Every error code, in one table. Users match on these: a code never changes its meaning.
///
/// Some begin with `DOCKER::` whatever the runtime: that is how published servers spell them, and
/// programs compare the whole text.
pub mod codes {
    macro_rules! codes {
        ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
            $($(#[$doc])* pub const $name: &str = $text;)*
            /// All of them, for documentation and `osb explain`.
            pub const ALL: &[&str] = &[$($text),*];
        };
    }

    codes! {
        /// The request carries no API key.
        MISSING_API_KEY = "MISSING_API_KEY",
        /// The API key is not one of ours.
        INVALID_API_KEY = "INVALID_API_KEY",
        /// The sandbox asks for its own token and the request lacks it.
        MISSING_OR_INVALID_SECURE_ACCESS = "MISSING_OR_INVALID_SECURE_ACCESS",
        /// The address was signed for a time that is over.
        SIGNATURE_EXPIRED = "ENDPOINT::SIGNATURE_EXPIRED",
        /// The address was signed for something else, or by nobody here.
        SIGNATURE_INVALID = "ENDPOINT::SIGNATURE_INVALID",
        /// No route has this path.
        NOT_FOUND = "GENERAL::NOT_FOUND",
        /// The path exists, but not with this method.
        METHOD_NOT_ALLOWED = "GENERAL::METHOD_NOT_ALLOWED",
        /// The body is larger than the server reads.
        BODY_TOO_LARGE = "GENERAL::BODY_TOO_LARGE",
        /// Something failed that the caller cannot mend.
        INTERNAL_ERROR = "SANDBOX::INTERNAL_ERROR",
        /// A field of the request cannot be accepted.
        INVALID_PARAMETER = "SANDBOX::INVALID_PARAMETER",
        /// Metadata breaks the label rules.
        INVALID_METADATA_LABEL = "SANDBOX::INVALID_METADATA_LABEL",
        /// The metadata filter of a list is not `key=value&…`.
        INVALID_METADATA_FORMAT = "INVALID_METADATA_FORMAT",
        /// The image is not known here.
        IMAGE_NOT_FOUND = "SANDBOX::IMAGE_NOT_FOUND",
        /// The registry does not give the image to whoever asked, or does not take it from them.
        IMAGE_ACCESS_DENIED = "SANDBOX::IMAGE_ACCESS_DENIED",
        /// The registry is at an address at which the operator lets nobody look for images.
        REGISTRY_NOT_ALLOWED = "SANDBOX::REGISTRY_NOT_ALLOWED",
        /// The image, or the archive that it is in, cannot be used here.
        IMAGE_REFUSED = "SANDBOX::IMAGE_REFUSED",
        /// The image could not be got from its registry.
        IMAGE_PULL_FAILED = "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
        /// The image could not be given to a registry.
        IMAGE_PUSH_FAILED = "SANDBOX::IMAGE_PUSH_FAILED",
        /// Sandboxes or snapshots stand on the image.
        IMAGE_IN_USE = "SANDBOX::IMAGE_IN_USE",
        /// The Dockerfile, or what is beside it, cannot be built.
        BUILD_INVALID = "IMAGE::BUILD_INVALID",
        /// A command of the Dockerfile failed.
        BUILD_FAILED = "IMAGE::BUILD_FAILED",
        /// No sandbox has this id.
        SANDBOX_NOT_FOUND = "DOCKER::SANDBOX_NOT_FOUND",
        /// The sandbox could not be started.
        SANDBOX_START_FAILED = "DOCKER::SANDBOX_START_FAILED",
        /// The sandbox could not be removed; it will be tried again.
        SANDBOX_DELETE_FAILED = "DOCKER::SANDBOX_DELETE_FAILED",
        /// The sandbox is not running, and the call needs it to be.
        SANDBOX_NOT_RUNNING = "DOCKER::SANDBOX_NOT_RUNNING",
        /// The sandbox is not paused, and the call needs it to be.
        SANDBOX_NOT_PAUSED = "DOCKER::SANDBOX_NOT_PAUSED",
        /// The new expiry is in the past, or the sandbox has none.
        INVALID_EXPIRATION = "DOCKER::INVALID_EXPIRATION",
        /// A port outside 1 to 65535.
        INVALID_PORT = "DOCKER::INVALID_PORT",
        /// This server or its runtime does not do that.
        NOT_SUPPORTED = "SANDBOX::API_NOT_SUPPORTED",
        /// The runtime does not make snapshots.
        SNAPSHOT_NOT_IMPLEMENTED = "SNAPSHOT::NOT_IMPLEMENTED",
        /// No snapshot has this id.
        SNAPSHOT_NOT_FOUND = "SNAPSHOT::NOT_FOUND",
        /// The snapshot is not Ready, and nothing can start from it.
        SNAPSHOT_NOT_READY = "SNAPSHOT::NOT_READY",
        /// The snapshot is still being taken.
        SNAPSHOT_INVALID_STATE = "SNAPSHOT::INVALID_STATE",
        /// The sandbox is neither running nor paused, so its files cannot be kept.
        SNAPSHOT_INVALID_SOURCE_STATE = "SNAPSHOT::INVALID_SOURCE_STATE",
        /// This sandbox cannot be kept as it is.
        SNAPSHOT_CONFLICT = "SNAPSHOT::RUNTIME_CREATE_CONFLICT",
        /// The files could not be kept.
        SNAPSHOT_FAILED = "SNAPSHOT::RUNTIME_CREATE_FAILED",
        /// The snapshot could not be deleted; it will be tried again.
        SNAPSHOT_DELETE_FAILED = "SNAPSHOT::DELETE_FAILED",
        /// The server is at its limit; try again later.
        TOO_BUSY = "SANDBOX::TOO_BUSY",
        /// Nothing listens on that port of the sandbox.
        BACKEND_CONNECTION_FAILED = "BACKEND_CONNECTION_FAILED",
        /// The service in the sandbox broke off or answered nonsense.
        BACKEND_RESPONSE_FAILED = "BACKEND_RESPONSE_FAILED",
        /// The service in the sandbox did not answer in time.
        BACKEND_TIMEOUT = "BACKEND_TIMEOUT",
        /// The port of the egress API asks for its token and the request lacks it.
        EGRESS_UNAUTHORIZED = "EGRESS::UNAUTHORIZED",
        /// The policy has more rules than the operator allows.
        TOO_MANY_RULES = "EGRESS::TOO_MANY_RULES",

        /// The vault was not made, or does not have what was asked for.
        VAULT_NOT_FOUND = "VAULT::NOT_FOUND",
        /// The sandbox has a vault already.
        VAULT_EXISTS = "VAULT::ALREADY_EXISTS",
        /// The vault is not at the revision that the caller knows.
        VAULT_REVISION_MISMATCH = "VAULT::REVISION_MISMATCH",
        /// A credential or a binding cannot be accepted.
        VAULT_INVALID = "VAULT::INVALID",
        /// The sandbox was made without a credential proxy.
        VAULT_NOT_READY = "VAULT::NOT_READY",
        /// The operator wants secrets to arrive encrypted.
        VAULT_TLS_REQUIRED = "VAULT::TLS_REQUIRED",
        /// What is in force, with its secrets, is shown to nobody.
        VAULT_FORBIDDEN = "VAULT::FORBIDDEN",

        /// execd: the body or a parameter of the request cannot be accepted.
        INVALID_REQUEST_BODY = "INVALID_REQUEST_BODY",
        /// execd: a query parameter is missing.
        MISSING_QUERY = "MISSING_QUERY",
        /// execd: the operating system refused.
        RUNTIME_ERROR = "RUNTIME_ERROR",
        /// execd: the upload is not a form.
        INVALID_FILE = "INVALID_FILE",
        /// execd: an upload lacks its content.
        INVALID_FILE_CONTENT = "INVALID_FILE_CONTENT",
        /// execd: an upload's metadata cannot be read.
        INVALID_FILE_METADATA = "INVALID_FILE_METADATA",
        /// execd: no such file.
        FILE_NOT_FOUND = "FILE_NOT_FOUND",
        /// execd: something else.
        UNKNOWN = "UNKNOWN",
        /// execd: no such session or context.
        CONTEXT_NOT_FOUND = "CONTEXT_NOT_FOUND",
        /// execd: nothing in the image runs code of this language, or not in the way that was asked for.
        LANGUAGE_NOT_AVAILABLE = "LANGUAGE_NOT_AVAILABLE",
        /// execd: another client is attached to the terminal.
        ALREADY_CONNECTED = "ALREADY_CONNECTED",
        /// execd: this daemon does not do that.
        EXECD_NOT_SUPPORTED = "NOT_SUPPORTED",
        /// execd: isolated sessions are not possible here or now.
        SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE",
        /// execd: the access token is missing or wrong.
        UNAUTHORIZED = "UNAUTHORIZED",

        /// The entrypoint is missing or cannot be a command.
        INVALID_ENTRYPOINT = "DOCKER::INVALID_ENTRYPOINT",
        /// The sandbox could not be paused; it runs on.
        SANDBOX_PAUSE_FAILED = "DOCKER::SANDBOX_PAUSE_FAILED",
        /// The sandbox could not be resumed; it stays paused.
        SANDBOX_RESUME_FAILED = "DOCKER::SANDBOX_RESUME_FAILED",
        /// A label that a patch sets is reserved. Patches spell this without a prefix.
        RESERVED_METADATA_LABEL = "INVALID_METADATA_LABEL",
        /// A request cannot choose a pool.
        UNSUPPORTED_POOL_REF = "SANDBOX::UNSUPPORTED_POOL_REF",
        /// Pools are not managed over the API.
        POOL_NOT_SUPPORTED = "KUBERNETES::POOL_NOT_SUPPORTED",
        /// No template has this id.
        TEMPLATE_NOT_FOUND = "FSB::TEMPLATE_NOT_FOUND",
        /// The template is not in a state for that.
        TEMPLATE_CONFLICT = "FSB::TEMPLATE_CONFLICT",
        /// The runtime has no templates.
        TEMPLATE_NOT_SUPPORTED = "FSB::API_NOT_SUPPORTED",
        /// There are no diagnostics of this scope.
        DIAGNOSTICS_SCOPE_UNSUPPORTED = "DIAGNOSTICS_SCOPE_UNSUPPORTED",

        /// The name of a volume is no DNS label.
        VOLUME_INVALID_NAME = "VOLUME::INVALID_NAME",
        /// Two volumes of a sandbox have the same name.
        VOLUME_DUPLICATE_NAME = "VOLUME::DUPLICATE_NAME",
        /// A volume says not exactly once where it comes from, or asks for what that cannot have.
        VOLUME_INVALID_BACKEND = "VOLUME::INVALID_BACKEND",
        /// A volume cannot be mounted where it should be.
        VOLUME_INVALID_MOUNT_PATH = "VOLUME::INVALID_MOUNT_PATH",
        /// The part of a volume is no path within it.
        VOLUME_INVALID_SUB_PATH = "VOLUME::INVALID_SUB_PATH",
        /// The path of the host is no plain absolute path.
        VOLUME_INVALID_HOST_PATH = "VOLUME::INVALID_HOST_PATH",
        /// The operator did not allow this path of the host.
        VOLUME_HOST_PATH_NOT_ALLOWED = "VOLUME::HOST_PATH_NOT_ALLOWED",
        /// The path of the host leads nowhere.
        VOLUME_HOST_PATH_NOT_FOUND = "VOLUME::HOST_PATH_NOT_FOUND",
        /// The path of the host is not there and cannot be made.
        VOLUME_HOST_PATH_CREATE_FAILED = "VOLUME::HOST_PATH_CREATE_FAILED",
        /// The name of a kept volume breaks the rules.
        VOLUME_INVALID_PVC_NAME = "VOLUME::INVALID_PVC_NAME",
        /// No kept volume has this name.
        VOLUME_PVC_NOT_FOUND = "VOLUME::PVC_NOT_FOUND",
        /// This server cannot have such a volume.
        VOLUME_UNSUPPORTED_BACKEND = "VOLUME::UNSUPPORTED_BACKEND",
        /// A sandbox uses the volume.
        VOLUME_IN_USE = "VOLUME::IN_USE",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::codes;

    #[test]
    fn no_code_stands_for_two_things() {
        let distinct: BTreeSet<_> = codes::ALL.iter().collect();
        assert_eq!(distinct.len(), codes::ALL.len());
    }
}
