// Page of a plan: timeline, memory and tiling from `data`, which Planning/Report/Page.cpp writes.
const kinds=[['forward','f'],['backward','b'],['weight gradients','w'],['update, norm','u'],['send','s'],['receive','r'],['gather','g'],['reduce','d']];
legend(document.getElementById('timeline'),kinds,'<span class=quiet>above: computing; below, thin: sends and receives, then gathers and sums</span>');

// Timeline: one row per device; compute in the upper half, communication in the lower half.
{const canvas=document.getElementById('timeline'),row=22,left=130,top=18;let from=0,to=1e6;
const lanes=[0,0,0,0,1,1,2,2];
function draw(){const h=top+data.timeline.length*row+4,[x,w]=size(canvas,h),scale=(w-left-6)/(to-from);
  x.clearRect(0,0,w,h);x.font='11px system-ui';x.fillStyle=c('dim');
  for(let i=0;i<=8;i++){const t=from+(to-from)*i/8,p=left+(t-from)*scale;x.fillText(seconds(t*1e-6*data.step),Math.min(p,w-52),12);x.fillStyle=c('line');x.fillRect(p,top,1,h-top);x.fillStyle=c('dim')}
  data.timeline.forEach((r,i)=>{const y=top+i*row,d=data.devices[r.d];x.fillStyle=c('fg');x.fillText(d[0].slice(0,16),4,y+11);x.fillStyle=c('dim');x.fillText(Math.round(100*d[4])+'%',left-32,y+11);
    for(const e of r.e){if(e[1]+e[2]<from||e[1]>to)continue;const p=left+Math.max(0,(e[1]-from)*scale),q=left+Math.min(w-left,(e[1]+e[2]-from)*scale);
      x.fillStyle=c0[e[0]];const lane=lanes[e[0]];x.fillRect(p,lane==0?y+1:lane==1?y+14:y+17,Math.max(.6,q-p-(q-p>3?.6:0)),lane==0?12:3)}});
}
const c0=kinds.map(k=>c(k[1]));
function at(e){const b=canvas.getBoundingClientRect(),i=Math.floor((e.clientY-b.top-top)/row),r=data.timeline[i];if(!r||e.clientX-b.left<left)return'';
  const t=from+(e.clientX-b.left-left)*(to-from)/(b.width-left-6),y=e.clientY-b.top-top-i*row;
  const hit=r.e.filter(v=>v[1]<=t&&t<=v[1]+v[2]&&(y<13)==(lanes[v[0]]==0));const d=data.devices[r.d];
  return d[0]+' ('+d[1]+', '+d[2]+')'+hit.slice(0,4).map(v=>'\n'+kinds[v[0]][0]+(v.length>3?' units '+v[3]+'-'+v[4]+', samples '+v[5]+'-'+v[6]:'')+', '+seconds(v[2]*1e-6*data.step)+' from '+seconds(v[1]*1e-6*data.step)).join('')}
let drag=null;
canvas.onmousemove=e=>{if(drag){const k=(to-from)/(canvas.clientWidth-left-6),m=(drag-e.clientX)*k;drag=e.clientX;const s=to-from;from=Math.max(0,Math.min(1e6-s,from+m));to=from+s;draw()}else say(e,at(e))};
canvas.onmousedown=e=>{drag=e.clientX;say(e,'')};addEventListener('mouseup',()=>drag=null);canvas.onmouseleave=e=>say(e,'');
canvas.ondblclick=()=>{from=0;to=1e6;draw()};
canvas.addEventListener('wheel',e=>{e.preventDefault();const b=canvas.getBoundingClientRect(),t=from+(e.clientX-b.left-left)*(to-from)/(b.width-left-6),f=e.deltaY>0?1.25:.8;
  const s=Math.min(1e6,Math.max(200,(to-from)*f));from=Math.max(0,Math.min(1e6-s,t-(t-from)*s/(to-from)));to=from+s;draw()},{passive:false});
draw();addEventListener('resize',draw)}

// Memory: stacked by purpose, with the device's capacity.
{const names=['state','gathered parameters','gradients','activations','workspace'],colours=['u','g','b','f','w'],box=document.getElementById('memory');
legend(box,names.map((n,i)=>[n,colours[i]]),'<span>red line: what the device has</span>');
data.timeline.forEach((r,i)=>{const d=data.devices[r.d],m=data.memory[i],n=m[0].length,total=m[0].map((_,k)=>m.reduce((s,p)=>s+p[k],0)),peak=Math.max(...total,1),limit=d[3]&&d[3]<peak*4?Math.max(d[3],peak):peak;
  const f=document.createElement('figure'),v=document.createElement('canvas');f.innerHTML=`<figcaption>${esc(d[0])} <span style="color:var(--dim)">${esc(d[1])}, planned ${d[5]}</span></figcaption>`;f.append(v);box.append(f);
  const [x,w]=size(v,84),base=new Array(n).fill(0);
  m.forEach((p,k)=>{x.fillStyle=c(colours[k]);x.beginPath();for(let t=0;t<n;t++){const y=84-80*(base[t]+p[t])/limit;t?x.lineTo(w*t/(n-1),y):x.moveTo(0,y)}for(let t=n-1;t>=0;t--)x.lineTo(w*t/(n-1),84-80*base[t]/limit);x.fill();for(let t=0;t<n;t++)base[t]+=p[t]});
  if(d[3]&&d[3]<=limit){x.strokeStyle=c('s');x.beginPath();x.moveTo(0,84-80*d[3]/limit);x.lineTo(w,84-80*d[3]/limit);x.stroke()}
  v.onmousemove=e=>{const t=Math.min(n-1,Math.max(0,Math.round(e.offsetX/w*(n-1))));say(e,d[0]+' at '+seconds(data.step*t/(n-1))+'\n'+names.map((q,k)=>q+' '+m[k][t]+' MiB').join('\n')+'\ntogether '+total[t]+' MiB')};v.onmouseleave=e=>say(e,'')})}

// Tiling: units on the y axis, samples on the x axis, one color per device.
{const canvas=document.getElementById('tiling'),h=Math.min(560,Math.max(140,data.units*14)),left=52,top=6;
const hue=d=>`hsl(${(d*137.508)%360} 52% ${48+((d*29)%23)}%)`;
function draw(){const [x,w]=size(canvas,h+22),sx=(w-left-8)/data.batch,sy=(h-top)/data.units;x.clearRect(0,0,w,h+22);x.font='11px system-ui';
  for(const t of data.tiling){x.fillStyle=hue(t[4]);const px=left+t[2]*sx,pw=(t[3]-t[2])*sx,py=top+t[0]*sy,ph=(t[1]-t[0])*sy;x.fillRect(px,py,Math.max(.5,pw-(pw>3?.8:0)),Math.max(.5,ph-(ph>3?.8:0)));
    const name=data.devices[t[4]][0];if(pw>name.length*6.5+6&&ph>13){x.fillStyle='#fff';x.fillText(name,px+4,py+12)}}
  x.fillStyle=c('dim');for(let i=0;i<=4;i++){x.fillText(Math.round(data.batch*i/4),Math.min(left+(w-left-8)*i/4,w-40),h+16)}x.fillText('samples',4,h+16);
  const cuts=[...new Set(data.tiling.map(t=>t[0]))].sort((a,b)=>a-b);let last=-99;for(const u of cuts){const y=top+u*sy+10;if(y-last>11){x.fillText('unit '+u,4,y);last=y}}}
canvas.onmousemove=e=>{const b=canvas.getBoundingClientRect(),s=(e.clientX-b.left-left)/(b.width-left-8)*data.batch,u=(e.clientY-b.top-top)/(h-top)*data.units,t=data.tiling.find(t=>t[0]<=u&&u<t[1]&&t[2]<=s&&s<t[3]);
  say(e,t?data.devices[t[4]][0]+' ('+data.devices[t[4]][1]+')\nunits '+t[0]+'-'+t[1]+', samples '+t[2]+'-'+t[3]:'')};canvas.onmouseleave=e=>say(e,'');
const used=[...new Set(data.tiling.map(t=>t[4]))].sort((a,b)=>a-b);
document.getElementById('tilinglegend').innerHTML=used.slice(0,64).map(d=>`<span><b style="background:${hue(d)}"></b>${esc(data.devices[d][0])} <span class=quiet>${esc(data.devices[d][1])}</span></span>`).join('')+(used.length>64?`<span>and ${used.length-64} more: point at the picture</span>`:'');
draw();addEventListener('resize',draw)}
