// SPDX-License-Identifier: Apache-2.0
// Dialogs: each act is asked once more, with what it does.

import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api.js";

const ACTS = {
  move: "Its ranks go to a standby; the job pauses for a moment.",
  drain: "It is cordoned, then its ranks go to a standby; the job pauses for a moment.",
  cordon: "No change will choose it until it is uncordoned. It keeps the ranks that it has.",
  uncordon: "It may take ranks again.",
};

export function Ask({ asked, act, close }) {
  const { what, machine } = asked;
  const submit = (event) => act({ ...asked, reason: new FormData(event.target).get("reason") || "" });
  return (
    <Dialog title={`${what} ${machine}?`} text={ACTS[what]} submit={submit} close={close}>
      <label>Why <input name="reason" maxLength={1000} placeholder="kept in the journal" /></label>
      <p class="acts">
        <button class="act" data-confirm autofocus>{what} {machine}</button>
        <button type="button" class="act" data-cancel onClick={close}>Cancel</button>
      </p>
    </Dialog>
  );
}

// The controller says who takes over. Nothing can be confirmed before that is known.
export function Kill({ asked, act, close }) {
  const { machine } = asked;
  const [loss, setLoss] = useState(null);
  useEffect(() => {
    api.loss(machine).then(setLoss, (error) => setLoss({ text: error.message, ends: false }));
  }, [machine]);
  const submit = () => act({ ...asked, force: loss.ends });
  const text = `Kills all processes on ${machine}. ${loss ? loss.text : "..."}`;
  return (
    <Dialog title={`kill ${machine}?`} text={text} submit={submit} close={close}>
      <p class="acts">
        <button class="act danger" data-confirm disabled={!loss}>{loss?.ends ? `kill ${machine} and end the job` : `kill ${machine}`}</button>
        <button type="button" class="act" data-cancel autofocus onClick={close}>Cancel</button>
      </p>
    </Dialog>
  );
}

function Dialog({ title, text, submit, close, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="asked">
      <form onSubmit={(event) => { event.preventDefault(); submit(event); }}>
        <h2 id="asked">{title}</h2>
        <p>{text}</p>
        {children}
      </form>
    </dialog>
  );
}
