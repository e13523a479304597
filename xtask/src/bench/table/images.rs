use serde_json::{Value, json};

use super::{Row, sample, times};
use crate::bench::images::Images;

/// How fast images are unpacked, stacked, built and pulled.
pub(super) fn rows(images: &Images) -> Vec<Row> {
    let Images { unpack, tar, one, forty, rebuild, pull } = images;
    let slower = unpack.percentile(50) / tar.percentile(50);
    let apart = (forty.percentile(50) - one.percentile(50)).abs();
    let mut rows = vec![
        Row {
            promise: "unpack a layer of 200 MB, p50".to_owned(),
            goal: "×1.3 of tar",
            measured: format!("{:.0} ms", unpack.percentile(50)),
            met: Some(slower <= 1.3),
            floor: format!("{:.0} ms tar -x (×{slower:.2})", tar.percentile(50)),
            ..Row::default()
        },
        Row {
            promise: "create → first output, 1 / 40 layers, p50".to_owned(),
            goal: "2 ms apart",
            measured: format!("{:.2} / {:.2} ms", one.percentile(50), forty.percentile(50)),
            met: Some(apart <= 2.0),
            ..Row::default()
        },
        Row {
            promise: "build with all ten steps cached, p50 / p99".to_owned(),
            goal: "200 ms",
            measured: times(rebuild),
            met: Some(rebuild.percentile(50) <= 200.0),
            ..Row::default()
        },
    ];
    rows.push(match pull {
        Some((pull, skopeo)) => {
            let speed = skopeo.percentile(50) / pull.percentile(50);
            Row {
                promise: "pull 10 layers of 10 MB, unpacked, p50".to_owned(),
                goal: "×0.8 as fast as skopeo",
                measured: format!("{:.0} ms (×{speed:.2})", pull.percentile(50)),
                met: Some(speed >= 0.8),
                floor: format!("{:.0} ms skopeo copy", skopeo.percentile(50)),
                ..Row::default()
            }
        }
        None => Row {
            measured: "no registry or no skopeo here".to_owned(),
            ..Row::not_yet("pull 10 layers of 10 MB, unpacked, p50", "×0.8 as fast as skopeo")
        },
    });
    rows
}

pub(super) fn json(images: &Images) -> Value {
    let Images { unpack, tar, one, forty, rebuild, pull } = images;
    json!({
        "unpack_200_mb": sample(unpack),
        "tar_200_mb": sample(tar),
        "create_from_1_layer": sample(one),
        "create_from_40_layers": sample(forty),
        "cached_build": sample(rebuild),
        "pull_10_layers": pull.as_ref().map(|(pull, _)| sample(pull)),
        "skopeo_10_layers": pull.as_ref().map(|(_, skopeo)| sample(skopeo)),
    })
}
