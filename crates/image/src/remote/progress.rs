use osb_registry::Digest;

/// How far a pull is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullProgress {
    pub phase: Phase,
    /// Lowest first; empty until the image is known.
    pub layers: Vec<LayerProgress>,
}

/// What a pull is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Asks the registry what the name stands for.
    #[default]
    Resolving,
    /// Layers arrive and are unpacked.
    Fetching,
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerProgress {
    /// Of its blob.
    pub digest: Digest,
    /// Bytes of its blob that are here, and all of them.
    pub bytes: u64,
    pub total: u64,
    pub stage: LayerStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerStage {
    Waiting,
    Downloading,
    Downloaded,
    Unpacking,
    Unpacked,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolving => "resolving",
            Self::Fetching => "fetching",
            Self::Done => "done",
        }
    }
}

impl LayerStage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Downloading => "downloading",
            Self::Downloaded => "downloaded",
            Self::Unpacking => "unpacking",
            Self::Unpacked => "unpacked",
        }
    }
}

impl PullProgress {
    /// Bytes that are here, of all layers.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }

    /// Bytes that there will be.
    pub fn total(&self) -> u64 {
        self.layers.iter().map(|layer| layer.total).sum()
    }

    /// Notes how much of a blob is here. An image may have it as several layers.
    pub(super) fn arrived(&mut self, digest: &Digest, bytes: u64) {
        for layer in self.layers.iter_mut().filter(|layer| layer.digest == *digest) {
            layer.bytes = bytes;
            layer.stage = layer.stage.max(LayerStage::Downloading);
            if bytes == layer.total {
                layer.stage = layer.stage.max(LayerStage::Downloaded);
            }
        }
    }

    pub(super) fn stage(&mut self, number: usize, stage: LayerStage) {
        if let Some(layer) = self.layers.get_mut(number) {
            layer.stage = stage;
        }
    }
}
