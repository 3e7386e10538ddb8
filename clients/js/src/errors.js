/** A request that a node refused, or a job, a key or a lock that ended badly. */
export class TenureError extends Error {
  /**
   * @param {number} status the HTTP status; 0 if the error is not a node's answer
   * @param {string} name the name of the problem, such as `unknown-job`
   * @param {string} detail what is wrong this time
   */
  constructor(status, name, detail, options) {
    super(detail, options);
    this.name = name;
    this.status = status;
    this.detail = detail;
  }
}

/** No node did what was asked in time. `status` is that of the last answer, or 0 if there was none. */
export class Unavailable extends TenureError {
  constructor(status, detail, options) {
    super(status, "unavailable", detail, options);
  }
}

/** The lock is no longer held: someone else may hold it. */
export class LockLost extends TenureError {
  constructor(lock) {
    super(0, "lock-lost", `the lock ${lock} was lost`);
  }
}
