// Talking to the server. Every failure becomes an ApiError with a sentence for people.

export class ApiError extends Error {
  constructor(status, error, retryAfter = 0) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.help = error.help || "";
    this.retryAfter = retryAfter;
  }
}

const NO_SERVER = {
  code: "no_server",
  message: "The server does not answer.",
  help: "Look whether cpcapp serve still runs, and load this page again.",
};

export async function ask(address, options = {}) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new ApiError(0, NO_SERVER);
  }
  if (response.ok) {
    return response.status === 204 ? null : response.json();
  }
  const answer = await response.json().catch(() => ({}));
  const error = answer.error || { code: "unknown", message: `The server answered ${response.status}.` };
  throw new ApiError(response.status, error, Number(response.headers.get("Retry-After")) || 0);
}

// Sends again later while the server has no room.
export async function askPatiently(address, makeOptions) {
  for (;;) {
    try {
      return await ask(address, makeOptions());
    } catch (error) {
      if (!(error instanceof ApiError) || ![429, 503].includes(error.status) || !error.retryAfter) {
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(error.retryAfter, 30)));
    }
  }
}

// Follows a job to its end; calls onProgress with each state.
export function follow(id, onProgress) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(`/api/jobs/${id}/events`);
    const end = (event) => {
      source.close();
      resolve(JSON.parse(event.data));
    };
    source.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
    source.addEventListener("done", end);
    source.addEventListener("failed", end);
    source.addEventListener("error", async () => {
      // The browser connects again by itself, unless the job is gone.
      if (source.readyState === EventSource.CONNECTING) {
        try {
          await ask(`/api/jobs/${id}`);
          return;
        } catch (error) {
          source.close();
          reject(error);
        }
        return;
      }
      source.close();
      ask(`/api/jobs/${id}`).then((job) => (["done", "failed"].includes(job.status) ? resolve(job) : reject(new ApiError(0, NO_SERVER))), reject);
    });
  });
}
