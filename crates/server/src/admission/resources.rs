use std::collections::BTreeMap;

use osb_core::{Cpu, InvalidQuantity, Memory, Resources};

use crate::error::ApiError;

/// What execd and a shell need, with some to spare: with too little, execd itself is ended.
const LEAST_MEMORY: Memory = Memory::from_bytes(8 << 20);
/// More than any machine has: whoever writes it means something else.
const MOST_MEMORY: Memory = Memory::from_bytes(16 << 40);

type Amounts = BTreeMap<String, String>;

pub(super) fn admit(
    limits: Option<Amounts>,
    requests: Option<Amounts>,
) -> Result<Resources, ApiError> {
    let limits = limits.ok_or_else(|| {
        ApiError::invalid("resourceLimits is missing: give it, if only as an empty object")
    })?;
    let resources = read("resourceLimits", &limits)?;
    // Nothing has to be set aside on a single host; but what cannot be read is a mistake.
    read("resourceRequests", &requests.unwrap_or_default())?;
    Ok(resources)
}

fn read(field: &str, amounts: &Amounts) -> Result<Resources, ApiError> {
    let mut resources = Resources::default();
    for (key, text) in amounts {
        let invalid = |error: InvalidQuantity| ApiError::invalid(format!("{field}.{key}: {error}"));
        match key.as_str() {
            "cpu" => resources.cpu = Some(text.parse::<Cpu>().map_err(invalid)?),
            "memory" => resources.memory = Some(memory(field, text.parse().map_err(invalid)?)?),
            // The second is what other clients say, the third what Kubernetes says.
            "disk" | "storage" | "ephemeral-storage" => {
                let limit = text.parse::<Memory>().map_err(invalid)?;
                if resources.disk.replace(limit).is_some() {
                    return Err(ApiError::invalid(format!("{field} limits the disk twice")));
                }
            }
            _ => {
                let shown: String = key.chars().take(64).collect();
                return Err(ApiError::invalid(format!(
                    "{field} has the key {shown:?}, which this server cannot enforce: it limits \
                     cpu, memory and disk"
                )));
            }
        }
    }
    Ok(resources)
}

/// An amount of memory in which a sandbox can live.
fn memory(field: &str, amount: Memory) -> Result<Memory, ApiError> {
    if (LEAST_MEMORY..=MOST_MEMORY).contains(&amount) {
        return Ok(amount);
    }
    Err(ApiError::invalid(format!(
        "{field}.memory must be from 8Mi, which execd and a small program need, to 16Ti"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> Result<Resources, ApiError> {
        let amounts = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        admit(Some(amounts.clone()), Some(amounts))
    }

    #[test]
    fn cpu_memory_and_disk_are_limits() {
        assert_eq!(check("cpu", "500m").expect("cpu").cpu, Some(Cpu::from_millis(500)));
        assert_eq!(
            check("memory", "2Gi").expect("memory").memory,
            Some(Memory::from_bytes(2 << 30))
        );
        for key in ["disk", "storage", "ephemeral-storage"] {
            assert_eq!(check(key, "1G").expect(key).disk, Some(Memory::from_bytes(1_000_000_000)));
        }
        assert_eq!(admit(Some(Amounts::new()), None).expect("none"), Resources::default());
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for (key, value) in
            [("gpu", "1"), ("disk", "much"), ("cpu", "many"), ("memory", "-1"), ("CPU", "1")]
        {
            assert!(check(key, value).is_err(), "{key}={value} was accepted");
        }
        for text in ["1Ki", "7Mi", "17Ti", "100Ti"] {
            let refused = format!("{:?}", check("memory", text).expect_err(text));
            assert!(refused.contains("from 8Mi"), "{refused}");
        }
        for text in ["8Mi", "16Ti"] {
            check("memory", text).expect(text);
        }
        assert!(admit(None, None).is_err(), "limits are required");
        let twice = [("disk", "1Gi"), ("storage", "2Gi")];
        let twice = twice.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        assert!(admit(Some(twice), None).is_err(), "two limits were accepted");
    }
}
