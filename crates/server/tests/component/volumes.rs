//! Storage that is kept under names.

use serde_json::{Value, json};

use crate::harness::{TestServer, with};

fn asking(names: &[&str]) -> Value {
    let volume = |name: &&str| json!({"name": name, "pvc": {"claimName": name}, "mountPath": format!("/{name}")});
    with(json!({"volumes": names.iter().map(volume).collect::<Vec<_>>()}))
}

#[tokio::test]
async fn volumes_are_listed_by_name_with_those_who_use_them() {
    let server = TestServer::start().await;
    assert_eq!(server.get("/v1/volumes").await.json()["items"], json!([]));
    let both = server.create_from(asking(&["b", "a"])).await;
    let one = server.create_from(asking(&["b"])).await;
    let listed = server.get("/v1/volumes").await.json();
    assert_eq!(listed["pagination"]["totalItems"], json!(2));
    let [a, b] = listed["items"].as_array().expect("items").as_slice() else { panic!("{listed}") };
    assert_eq!(
        *a,
        json!({
            "name": "a", "sizeBytes": 4096, "usedBy": [both],
            "deleteOnSandboxTermination": false, "createdAt": "1970-01-01T00:00:00Z"
        })
    );
    let mut users = [both, one];
    users.sort();
    assert_eq!((&b["name"], &b["usedBy"]), (&json!("b"), &json!(users)));
    let page = server.get("/volumes?page=2&pageSize=1").await.json();
    assert_eq!(page["items"], json!([b]));
    server.get("/v1/volumes?page=0").await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    server.get("/v1/volumes?pageSize=201").await.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn a_volume_is_deleted_once_nobody_uses_it() {
    let server = TestServer::start().await;
    let sandbox = server.create_from(asking(&["a"])).await;
    let refused = server.delete("/v1/volumes/a").await;
    let message = refused.refusal(409, "VOLUME::IN_USE");
    assert!(message.contains(&sandbox), "{message}");
    assert_eq!(server.delete(&format!("/v1/sandboxes/{sandbox}")).await.status, 204);
    assert_eq!(server.delete("/v1/volumes/a").await.status, 204);
    for absent in ["a", "A", "..", "a%2Fb", "%2e%2e", &"x".repeat(300)] {
        let answer = server.delete(&format!("/v1/volumes/{absent}")).await;
        answer.refusal(404, "VOLUME::PVC_NOT_FOUND");
    }
    assert_eq!(server.get("/v1/volumes").await.json()["items"], json!([]));
}
