use std::fmt::{self, Write as _};

use osb_image::Usage;

use crate::library::{Library, PullCounts};

/// Adds what images take, and how pulls fare; nothing if the runtime keeps images to itself.
pub(super) fn add(text: String, library: Option<&Library>) -> Result<String, fmt::Error> {
    match library {
        Some(library) => write(text, &library.images().usage(), &library.pulls().counts()),
        None => Ok(text),
    }
}

fn write(mut text: String, usage: &Usage, pulls: &PullCounts) -> Result<String, fmt::Error> {
    let name = "opensandbox_images";
    writeln!(text, "# HELP {name} Images on this machine.\n# TYPE {name} gauge")?;
    writeln!(text, "{name} {}", usage.images)?;
    let name = "opensandbox_image_bytes";
    writeln!(text, "# HELP {name} Bytes that images take.\n# TYPE {name} gauge")?;
    for (kind, bytes) in [("blobs", usage.blobs), ("layers", usage.layers)] {
        writeln!(text, "{name}{{kind=\"{kind}\"}} {bytes}")?;
    }
    let name = "opensandbox_image_pulls";
    writeln!(text, "# HELP {name} Requests that wait for an image.\n# TYPE {name} gauge")?;
    writeln!(text, "{name} {}", pulls.waiting)?;
    let name = "opensandbox_image_pulls_total";
    writeln!(text, "# HELP {name} Requests that waited for an image.\n# TYPE {name} counter")?;
    for (outcome, count) in pulls.ended {
        writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_images_take_and_how_pulls_end_are_numbers() {
        let usage = Usage { images: 2, blobs: 10, layers: 30, shared: 0, unused: 0 };
        let ended = [("succeeded", 3), ("failed", 1), ("abandoned", 0)];
        let text = write(String::new(), &usage, &PullCounts { waiting: 4, ended }).unwrap();
        for line in [
            "opensandbox_images 2",
            "opensandbox_image_bytes{kind=\"layers\"} 30",
            "opensandbox_image_pulls 4",
            "opensandbox_image_pulls_total{outcome=\"failed\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
