use std::collections::BTreeMap;

/// What operators say about images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Names that clients may ask for, and which image of this machine they get.
    pub aliases: BTreeMap<String, String>,
    pub limits: Limits,
}

/// What an image may cost. One that costs more is refused, whatever it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one layer, unpacked.
    pub layer: u64,
    /// Bytes of all layers of an image, unpacked.
    pub image: u64,
    /// Bytes of an archive that is imported, as it comes.
    pub archive: u64,
    /// Files, directories and links of one layer.
    pub entries: u64,
    /// Layers of an image.
    pub layers: usize,
    /// Bytes of a path.
    pub path: usize,
    /// Directories on the way to a file.
    pub depth: usize,
    /// How many times as large as its blob a layer may be, once it is larger than [`Self::unproven`].
    pub ratio: u64,
    /// How large a layer may be however small its blob is.
    pub unproven: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layer: 32 << 30,
            image: 64 << 30,
            archive: 64 << 30,
            entries: 2_000_000,
            layers: 512,
            path: 4096,
            depth: 128,
            ratio: 250,
            unproven: 256 << 20,
        }
    }
}
