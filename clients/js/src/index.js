export { Client } from "./client.js";
export { LockLost, TenureError, Unavailable } from "./errors.js";
