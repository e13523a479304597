//! Images, an extension of the lifecycle API.

use osb_api::images as wire;
use utoipa::openapi::{Required, Type};

use super::operation::{Operation, bytes, delete, get, one, post};

const EXTENSION: &str = "An extension of this server: other servers do not have it.";
const EVENTS: &str = "application/x-ndjson";
const ARCHIVE: &str = "application/x-tar";

pub(super) fn operations() -> Vec<Operation> {
    let all = [
        get("listImages", "/images", "List the images that are here, in the order they came")
            .describe(EXTENSION)
            .query::<wire::ListImagesQuery>()
            .answers(200, "One page of them.", one::<wire::ListImagesResponse>())
            .errors(&[400, 401, 500, 501]),
        get("inspectImage", "/images/inspect", "Describe an image")
            .describe(EXTENSION)
            .needs("name", "Its name, or its digest.")
            .answers(200, "The image.", one::<wire::Image>())
            .errors(&[400, 401, 404, 500, 501]),
        delete("deleteImage", "/images", "Take a name of an image away")
            .describe(
                "With a digest all its names, unless something stands on it. The image goes once no \
                 sandbox and no snapshot stands on it. An extension of this server: other servers \
                 do not have it.",
            )
            .needs("name", "The name, or the digest.")
            .empty(204, "The name stands for nothing.")
            .errors(&[400, 401, 404, 409, 500, 501]),
        post("tagImage", "/images/tag", "Give an image another name")
            .describe(EXTENSION)
            .body(one::<wire::TagImageRequest>())
            .empty(204, "The name stands for it.")
            .errors(&[400, 401, 404, 500, 501]),
        events(post("pullImage", "/images/pull", "Get an image from its registry"))
            .body(one::<wire::PullImageRequest>())
            .errors(&[400, 401, 500, 501]),
        events(post("pushImage", "/images/push", "Give an image to a registry"))
            .body(one::<wire::PushImageRequest>())
            .errors(&[400, 401, 404, 500, 501]),
        post("importImages", "/images/import", "Take in the images of an archive")
            .describe(
                "One of `docker save`, a layout of the OCI, or a root file system; each may be \
                 compressed. An extension of this server: other servers do not have it.",
            )
            .may("name", "What the image is to be called, if there is one.", Type::String)
            .request(ARCHIVE, bytes(), Required::True)
            .answers(200, "What was in it.", one::<wire::ImportImagesResponse>())
            .errors(&[400, 401, 429, 500, 501]),
        get("exportImage", "/images/export", "An image as an archive")
            .describe(EXTENSION)
            .needs("name", "Its name, or its digest.")
            .may("format", "`oci`, which is the default, or `docker`.", Type::String)
            .answers_as(ARCHIVE, 200, "The archive.", bytes())
            .errors(&[400, 401, 404, 429, 500, 501]),
        events(post("buildImage", "/images/build", "Build an image of a Dockerfile"))
            .request(ARCHIVE, bytes(), Required::True)
            .errors(&[400, 401, 413, 429, 500, 501]),
        get("listBuildCaches", "/images/build", "What builds left for the next ones")
            .describe(EXTENSION)
            .answers(200, "Steps and caches.", one::<wire::BuildsResponse>())
            .errors(&[401, 500, 501]),
        delete("forgetBuilds", "/images/build", "Forget what builds left for the next ones")
            .describe(EXTENSION)
            .empty(204, "All of it that nobody uses is forgotten.")
            .errors(&[401, 500, 501]),
        post("collectImages", "/images/gc", "Remove what nobody needs")
            .describe(EXTENSION)
            .answers(200, "What that was.", one::<wire::CollectImagesResponse>())
            .errors(&[401, 500, 501]),
    ];
    all.into_iter().map(|operation| operation.tag("images")).collect()
}

/// An operation that tells how far it is.
fn events(operation: Operation) -> Operation {
    operation
        .describe(
            "Answers with one JSON document per line, of which the last has the type `image` or \
             `error`. A client that goes away breaks it off. An extension of this server: other \
             servers do not have it.",
        )
        .answers_as(EVENTS, 200, "What happens, line by line.", one::<wire::ImageEvent>())
}
